-- How long does each step take, and which rank is the slowest?
--
-- slowest_ns is the longest duration of the step on any rank, which is the time that the job takes for it; spread_ns is
-- the difference to the fastest rank.
-- $limit = 50: number of rows
SELECT
    step,
    count(*) AS ranks,
    max(duration_ns) AS slowest_ns,
    median(duration_ns)::BIGINT AS median_ns,
    min(duration_ns) AS fastest_ns,
    max(duration_ns) - min(duration_ns) AS spread_ns,
    arg_max(rank, (duration_ns, -rank)) AS slowest_rank
FROM step_times
GROUP BY step
ORDER BY step NULLS LAST
LIMIT $limit;
