-- Work on devices with the call that launched it, and the innermost operator or annotation around that call.
CREATE VIEW launches AS
SELECT
    work.rank,
    work.event,
    work.kind,
    work.name,
    work.part,
    tracks.process AS device,
    tracks.identity AS stream,
    work.start_ns,
    work.duration_ns,
    call.event AS call,
    call.name AS call_name,
    call.start_ns AS called_ns,
    call.duration_ns AS call_duration_ns,
    work.start_ns - call.start_ns AS delay_ns,
    caller.event AS caller,
    caller.name AS caller_name
FROM edges AS launch
JOIN events AS work ON work.rank = launch.rank AND work.event = launch.target
JOIN events AS call ON call.rank = launch.rank AND call.event = launch.source
JOIN tracks ON tracks.rank = work.rank AND tracks.track = work.track
LEFT JOIN edges AS calls
    ON calls.rank = launch.rank AND calls.target = launch.source AND calls.relation = 'calls'
LEFT JOIN events AS caller ON caller.rank = calls.rank AND caller.event = calls.source
WHERE launch.relation = 'launches' AND work.kind IN ('kernel', 'memcpy', 'memset');
