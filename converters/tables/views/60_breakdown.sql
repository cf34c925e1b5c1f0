-- What each step of each rank consists of, as `tracelink summary` divides it: computation covers communication, both
-- cover copies, and what is left is idle. The parts add up to the duration. For ranks with work on devices.
CREATE VIEW breakdown AS
WITH points AS (
    SELECT rank, start_ns AS time_ns, (part = 'compute')::INT AS compute,
        (part = 'communication')::INT AS communication, (part = 'copy')::INT AS copy
    FROM events WHERE part IS NOT NULL
    UNION ALL
    SELECT rank, start_ns + duration_ns, -(part = 'compute')::INT,
        -(part = 'communication')::INT, -(part = 'copy')::INT
    FROM events WHERE part IS NOT NULL
    UNION ALL
    SELECT rank, unnest([start_ns, end_ns]), 0, 0, 0 FROM steps
),
segments AS (
    SELECT rank, time_ns, lead(time_ns) OVER running - time_ns AS ns,
        sum(compute) OVER running > 0 AS computes,
        sum(communication) OVER running > 0 AS communicates,
        sum(copy) OVER running > 0 AS copies
    FROM points
    WINDOW running AS (PARTITION BY rank ORDER BY time_ns ROWS UNBOUNDED PRECEDING)
),
sums AS (
    SELECT steps.rank, steps.start_ns,
        sum(ns) FILTER (computes) AS compute_ns,
        sum(ns) FILTER (communicates AND NOT computes) AS exposed_communication_ns,
        sum(ns) FILTER (copies AND NOT computes AND NOT communicates) AS exposed_copy_ns,
        sum(ns) FILTER (NOT computes AND NOT communicates AND NOT copies) AS idle_ns,
        sum(ns) FILTER (communicates) AS communication_ns,
        sum(ns) FILTER (copies) AS copy_ns
    FROM segments
    ASOF JOIN steps ON steps.rank = segments.rank AND segments.time_ns >= steps.start_ns
    WHERE segments.time_ns < steps.end_ns
    GROUP BY ALL
)
SELECT
    steps.rank,
    steps.step,
    steps.start_ns,
    steps.end_ns - steps.start_ns AS duration_ns,
    coalesce(compute_ns, 0)::BIGINT AS compute_ns,
    coalesce(exposed_communication_ns, 0)::BIGINT AS exposed_communication_ns,
    coalesce(exposed_copy_ns, 0)::BIGINT AS exposed_copy_ns,
    coalesce(idle_ns, 0)::BIGINT AS idle_ns,
    coalesce(communication_ns, 0)::BIGINT AS communication_ns,
    coalesce(copy_ns, 0)::BIGINT AS copy_ns
FROM steps
JOIN sums ON sums.rank = steps.rank AND sums.start_ns = steps.start_ns
WHERE steps.rank IN (SELECT rank FROM events WHERE part IS NOT NULL);
