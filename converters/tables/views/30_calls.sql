-- Events on threads with their thread, what called them, and their time without what they call.
CREATE VIEW calls AS
SELECT
    events.rank,
    events.event,
    events.kind,
    events.name,
    tracks.process,
    tracks.identity AS thread,
    events.start_ns,
    events.duration_ns,
    events.self_ns,
    events.caller
FROM events
JOIN tracks ON tracks.rank = events.rank AND tracks.track = events.track
WHERE events.kind IN ('operator', 'annotation', 'python', 'runtime');
