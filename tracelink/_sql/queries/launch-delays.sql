-- How long does work wait between the call that launches it and its start?
--
-- Delays are from the start of the call to the start of the work on the device. A delay of some microseconds is the
-- launch itself; a longer one is the queue of the stream, which is what keeps the device busy.
-- $limit = 20: number of rows
-- $rank = null: only this rank
WITH delays AS (
    SELECT kind, name, start_ns - called_ns AS delay_ns
    FROM events
    WHERE called_ns IS NOT NULL AND ($rank IS NULL OR rank = $rank)
),
by_name AS (
    SELECT
        kind,
        name,
        count(*) AS launches,
        min(delay_ns) AS shortest_ns,
        quantile_cont(delay_ns, [0.5, 0.99]) AS quantiles,
        max(delay_ns) AS longest_ns,
        sum(delay_ns)::BIGINT AS total_ns
    FROM delays
    GROUP BY kind, name
)
SELECT
    kind,
    name,
    launches,
    shortest_ns,
    quantiles[1]::BIGINT AS median_ns,
    quantiles[2]::BIGINT AS p99_ns,
    longest_ns,
    total_ns
FROM by_name
ORDER BY total_ns DESC, kind, name
LIMIT $limit;
