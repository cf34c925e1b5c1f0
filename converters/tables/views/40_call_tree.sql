-- Everything that one event calls, directly or not: FROM call_tree(0, 17) is that of event 17 of rank 0.
CREATE MACRO call_tree(of_rank, of_event) AS TABLE
WITH RECURSIVE tree AS (
    SELECT calls.*, 0 AS depth FROM calls WHERE calls.rank = of_rank AND calls.event = of_event
    UNION ALL
    SELECT calls.*, tree.depth + 1
    FROM tree
    JOIN calls ON calls.rank = tree.rank AND calls.caller = tree.event
)
SELECT depth, event, kind, name, start_ns, duration_ns, self_ns, caller FROM tree ORDER BY start_ns, depth;
