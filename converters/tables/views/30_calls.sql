-- Events on threads with what called them, and their time without what they call.
CREATE VIEW calls AS
WITH inner_time AS (
    SELECT called.rank, edges.source AS event, sum(called.duration_ns) AS inner_ns, count(*) AS called
    FROM edges
    JOIN events AS called ON called.rank = edges.rank AND called.event = edges.target
    WHERE edges.relation = 'calls'
    GROUP BY ALL
)
SELECT
    events.rank,
    events.event,
    events.kind,
    events.name,
    events.track,
    events.start_ns,
    events.duration_ns,
    CAST(events.duration_ns - coalesce(inner_time.inner_ns, 0) AS BIGINT) AS self_ns,
    coalesce(inner_time.called, 0) AS called,
    edges.source AS caller
FROM events
LEFT JOIN inner_time ON inner_time.rank = events.rank AND inner_time.event = events.event
LEFT JOIN edges ON edges.rank = events.rank AND edges.target = events.event AND edges.relation = 'calls'
WHERE events.kind IN ('operator', 'annotation', 'python', 'runtime');
