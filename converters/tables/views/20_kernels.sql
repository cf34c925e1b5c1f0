-- Kernels, copies and memsets with their device and stream.
CREATE VIEW kernels AS
SELECT
    events.rank,
    events.event,
    events.kind,
    events.name,
    events.part,
    tracks.process AS device,
    tracks.identity AS stream,
    events.start_ns,
    events.duration_ns,
    events.start_ns + events.duration_ns AS end_ns,
    events.correlation
FROM events
JOIN tracks ON tracks.rank = events.rank AND tracks.track = events.track
WHERE events.kind IN ('kernel', 'memcpy', 'memset');
