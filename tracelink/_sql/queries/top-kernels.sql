-- Which kernels take most of the time on the devices?
--
-- total_ns is the time of all calls on all ranks, ranks on how many ranks it runs; share is the part of the time of
-- all kernels. With $rank, only that rank.
-- $limit = 20: number of rows
-- $rank = null: only this rank
WITH by_rank AS (
    SELECT
        rank,
        name,
        any_value(part) = 'communication' AS communication,
        count(*) AS count,
        sum(duration_ns)::BIGINT AS total_ns,
        max(duration_ns) AS max_ns
    FROM events
    WHERE kind = 'kernel' AND part IS NOT NULL AND ($rank IS NULL OR rank = $rank)
    GROUP BY rank, name
)
SELECT
    name,
    any_value(communication) AS communication,
    sum(count)::BIGINT AS count,
    sum(total_ns)::BIGINT AS total_ns,
    round(sum(total_ns) / sum(sum(total_ns)) OVER (), 4) AS share,
    round(sum(total_ns) / sum(count))::BIGINT AS mean_ns,
    max(max_ns) AS max_ns,
    count(*) AS ranks
FROM by_rank
GROUP BY name
ORDER BY total_ns DESC, name
LIMIT $limit;
