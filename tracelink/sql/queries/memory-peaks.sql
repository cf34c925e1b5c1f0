-- How much memory did each rank use at most, and when?
--
-- Of each counter of bytes its largest value, the time of that, and the operator that began last before it.
-- $limit = 50: number of rows
WITH peaks AS (
    SELECT rank, counter, max(value) AS peak, arg_max(time_ns, (value, -time_ns)) AS peak_ns
    FROM sampled
    WHERE unit = 'bytes'
    GROUP BY rank, counter
),
operators AS (
    SELECT rank, start_ns, name FROM events WHERE kind = 'operator' AND start_ns IS NOT NULL
)
SELECT
    peaks.rank,
    peaks.counter,
    peaks.peak::BIGINT AS peak_bytes,
    peaks.peak_ns,
    operators.name AS after_operator
FROM peaks
ASOF LEFT JOIN operators ON operators.rank = peaks.rank AND operators.start_ns <= peaks.peak_ns
ORDER BY peak_bytes DESC, peaks.rank, peaks.counter
LIMIT $limit;
