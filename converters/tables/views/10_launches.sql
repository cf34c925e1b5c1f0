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
    work.call,
    call.name AS call_name,
    work.called_ns,
    call.duration_ns AS call_duration_ns,
    work.start_ns - work.called_ns AS delay_ns,
    call.caller,
    caller.name AS caller_name
FROM events AS work
JOIN tracks ON tracks.rank = work.rank AND tracks.track = work.track
JOIN events AS call ON call.rank = work.rank AND call.event = work.call
LEFT JOIN events AS caller ON caller.rank = call.rank AND caller.event = call.caller
WHERE work.part IS NOT NULL;
