-- Which kernels take most of the time on the devices?
--
-- total_ns is the time of all calls on all ranks, ranks on how many ranks it runs; share is the part of the time of
-- all kernels. With $rank, only that rank.
-- $limit = 20: number of rows
-- $rank = null: only this rank
SELECT
    name,
    part = 'communication' AS communication,
    count(*) AS count,
    sum(duration_ns)::BIGINT AS total_ns,
    round(sum(duration_ns) / sum(sum(duration_ns)) OVER (), 4) AS share,
    round(avg(duration_ns))::BIGINT AS mean_ns,
    max(duration_ns) AS max_ns,
    count(DISTINCT rank) AS ranks
FROM events
WHERE kind = 'kernel' AND part IS NOT NULL AND ($rank IS NULL OR rank = $rank)
GROUP BY ALL
ORDER BY total_ns DESC, name
LIMIT $limit;
