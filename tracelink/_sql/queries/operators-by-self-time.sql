-- In which operators do the threads spend their time, without what the operators call?
--
-- self_ns is the time of all calls without the time of the operators, calls of the runtime and others within them;
-- total_ns contains these, once for each operator.
-- $limit = 20: number of rows
-- $rank = null: only this rank
SELECT
    name,
    count(*) AS count,
    sum(self_ns)::BIGINT AS self_ns,
    sum(duration_ns)::BIGINT AS total_ns,
    round(sum(self_ns) / sum(sum(self_ns)) OVER (), 4) AS share,
    count(DISTINCT rank) AS ranks
FROM events
WHERE kind = 'operator' AND duration_ns IS NOT NULL AND ($rank IS NULL OR rank = $rank)
GROUP BY name
ORDER BY self_ns DESC, name
LIMIT $limit;
