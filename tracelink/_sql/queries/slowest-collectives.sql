-- Which collectives take longest once the last rank has come, and at which bandwidth?
--
-- The columns are those of `tracelink collectives`: duration_ns is from the entry of the last rank to the last exit,
-- skew_ns from the first entry to the last one.
-- $limit = 20: number of rows
SELECT
    groups.name AS group_name,
    groups.description AS description,
    collectives.sequence,
    collectives.operation,
    collectives.bytes,
    collectives.duration_ns,
    collectives.skew_ns,
    collectives.last_rank,
    round(collectives.bus_gb_s, 3) AS bus_gb_s,
    collectives.verdict
FROM collectives
LEFT JOIN groups ON groups.group_id = collectives.group_id
WHERE collectives.duration_ns IS NOT NULL
ORDER BY collectives.duration_ns DESC, collectives.collective
LIMIT $limit;
