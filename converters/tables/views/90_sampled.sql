-- Samples of counters with the names of these.
CREATE VIEW sampled AS
SELECT counters.rank, tracks.process, tracks.identity AS counter, tracks.label, tracks.unit, counters.time_ns,
    counters.value, counters.operator
FROM counters
JOIN tracks ON tracks.rank = counters.rank AND tracks.track = counters.track;
