-- How much memory did each rank use at most, and when?
--
-- Of each counter of bytes its largest value, the time of that, and the operator that began last before it.
-- $limit = 50: number of rows
WITH peaks AS (
    SELECT rank, counter, max(value) AS peak,
        arg_max({'time_ns': time_ns, 'operator': operator}, (value, -time_ns)) AS first
    FROM sampled
    WHERE unit = 'bytes'
    GROUP BY rank, counter
)
SELECT
    peaks.rank,
    peaks.counter,
    peaks.peak::BIGINT AS peak_bytes,
    peaks.first.time_ns AS peak_ns,
    events.name AS after_operator
FROM peaks
LEFT JOIN events ON events.rank = peaks.rank AND events.event = peaks.first.operator
ORDER BY peak_bytes DESC, peaks.rank, peaks.counter
LIMIT $limit;
