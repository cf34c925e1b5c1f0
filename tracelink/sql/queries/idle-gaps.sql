-- What are the longest times in which no work runs on the devices of a rank, and what ends them?
--
-- A gap is between the end of all work so far and the start of the next work; next is that work, launched_ns is when it
-- was launched, and late_ns is the part of the gap before that: the time for which the host is responsible.
-- $limit = 20: number of rows
-- $rank = null: only this rank
WITH gaps AS (
    SELECT
        rank,
        event,
        name,
        start_ns,
        max(start_ns + duration_ns) OVER (
            PARTITION BY rank ORDER BY start_ns, event ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS idle_from_ns
    FROM events
    WHERE part IS NOT NULL AND ($rank IS NULL OR rank = $rank)
),
longest AS (
    SELECT *, start_ns - idle_from_ns AS gap_ns
    FROM gaps
    WHERE start_ns > idle_from_ns
    ORDER BY gap_ns DESC, rank, event
    LIMIT $limit
)
SELECT
    longest.rank,
    longest.gap_ns,
    longest.idle_from_ns,
    longest.name AS next,
    launches.called_ns AS launched_ns,
    greatest(least(launches.called_ns, longest.start_ns) - longest.idle_from_ns, 0) AS late_ns,
    launches.caller_name AS caller
FROM longest
LEFT JOIN launches ON launches.rank = longest.rank AND launches.event = longest.event
ORDER BY gap_ns DESC, longest.rank, longest.event;
