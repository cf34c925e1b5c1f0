-- What does the communication of each process group cost?
--
-- residence_ns is the time that ranks spent in the collectives, from entering to leaving, and wait_ns the part of it
-- before the last rank came, both added up over all ranks; transfer_ns is the median time from then to the end.
-- $limit = 50: number of rows
SELECT
    groups.name AS group_name,
    groups.description AS description,
    collectives.operation,
    collectives.bytes,
    count(DISTINCT collectives.collective) AS count,
    sum(participations.end_ns - participations.start_ns)::BIGINT AS residence_ns,
    sum(participations.wait_ns)::BIGINT AS wait_ns,
    median(collectives.duration_ns)::BIGINT AS transfer_ns,
    round(median(collectives.bus_gb_s), 3) AS bus_gb_s
FROM collectives
JOIN participations ON participations.collective = collectives.collective
LEFT JOIN groups ON groups.group_id = collectives.group_id
GROUP BY ALL
ORDER BY residence_ns DESC NULLS LAST, group_name, operation, collectives.bytes
LIMIT $limit;
