-- What are the longest times in which no work runs on the devices of a rank, and what ends them?
--
-- A gap is between the end of all work so far and the start of the next work; next is that work, launched_ns is when it
-- was launched, and late_ns is the part of the gap before that: the time for which the host is responsible.
-- $limit = 20: number of rows
-- $rank = null: only this rank
WITH longest AS (
    SELECT rank, event, name, start_ns, idle_ns, call, called_ns
    FROM events
    WHERE idle_ns IS NOT NULL AND ($rank IS NULL OR rank = $rank)
    ORDER BY idle_ns DESC, rank, event
    LIMIT $limit
)
SELECT
    longest.rank,
    longest.idle_ns AS gap_ns,
    longest.start_ns - longest.idle_ns AS idle_from_ns,
    longest.name AS next,
    longest.called_ns AS launched_ns,
    greatest(least(longest.called_ns, longest.start_ns) - (longest.start_ns - longest.idle_ns), 0) AS late_ns,
    caller.name AS caller
FROM longest
LEFT JOIN events AS call ON call.rank = longest.rank AND call.event = longest.call
LEFT JOIN events AS caller ON caller.rank = call.rank AND caller.event = call.caller
ORDER BY gap_ns DESC, longest.rank, longest.event;
