-- For which ranks do the others wait in collectives?
--
-- last is in how many collectives the rank came last, others_waited_ns how long all other ranks waited for it in these,
-- and waited_ns how long it waited for others in all collectives.
-- $limit = 20: number of rows
WITH caused AS (
    SELECT last_rank AS rank, count(DISTINCT collective) AS last, sum(wait_ns)::BIGINT AS others_waited_ns
    FROM arrivals
    WHERE last_rank IS NOT NULL
    GROUP BY last_rank
),
waits AS (
    SELECT rank, count(*) AS collectives, sum(wait_ns)::BIGINT AS waited_ns
    FROM arrivals
    GROUP BY rank
)
SELECT
    waits.rank,
    coalesce(caused.last, 0) AS last,
    waits.collectives,
    coalesce(caused.others_waited_ns, 0) AS others_waited_ns,
    coalesce(waits.waited_ns, 0) AS waited_ns
FROM waits
LEFT JOIN caused ON caused.rank = waits.rank
ORDER BY others_waited_ns DESC, waits.rank
LIMIT $limit;
