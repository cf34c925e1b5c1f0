-- Everything that one event calls, directly or not: FROM call_tree(0, 17) is that of event 17 of rank 0.
CREATE MACRO call_tree(of_rank, of_event) AS TABLE
WITH RECURSIVE tree AS (
    SELECT 0 AS depth, event, kind, name, start_ns, duration_ns, self_ns, caller
    FROM events
    WHERE rank = of_rank AND event = of_event
    UNION ALL
    SELECT
        tree.depth + 1, called.event, called.kind, called.name, called.start_ns, called.duration_ns, called.self_ns,
        called.caller
    FROM tree
    JOIN events AS called ON called.rank = of_rank AND called.caller = tree.event
)
SELECT * FROM tree ORDER BY start_ns, depth, event;
