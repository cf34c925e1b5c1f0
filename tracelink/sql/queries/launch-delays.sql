-- How long does work wait between the call that launches it and its start?
--
-- Delays are from the start of the call to the start of the work on the device. A delay of some microseconds is the
-- launch itself; a longer one is the queue of the stream, which is what keeps the device busy.
-- $limit = 20: number of rows
-- $rank = null: only this rank
SELECT
    kind,
    name,
    count(*) AS launches,
    min(start_ns - called_ns) AS shortest_ns,
    median(start_ns - called_ns)::BIGINT AS median_ns,
    quantile_cont(start_ns - called_ns, 0.99)::BIGINT AS p99_ns,
    max(start_ns - called_ns) AS longest_ns,
    sum(start_ns - called_ns)::BIGINT AS total_ns
FROM events
WHERE part IS NOT NULL AND called_ns IS NOT NULL AND ($rank IS NULL OR rank = $rank)
GROUP BY ALL
ORDER BY total_ns DESC, kind, name
LIMIT $limit;
