-- Each rank's part in each collective: when it came, how long it waited for the last rank, and whether it was the last.
CREATE VIEW arrivals AS
SELECT
    collectives.collective,
    groups.name AS group_name,
    groups.description AS group_description,
    collectives.sequence,
    collectives.operation,
    collectives.bytes,
    participations.rank,
    participations.start_ns,
    participations.end_ns,
    participations.start_ns - collectives.start_ns AS late_ns,
    participations.wait_ns,
    participations.rank = collectives.last_rank AS is_last,
    collectives.last_rank,
    participations.state,
    participations.evidence
FROM participations
JOIN collectives ON collectives.collective = participations.collective
LEFT JOIN groups ON groups.group_id = collectives.group_id;
