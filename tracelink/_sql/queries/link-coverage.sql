-- How many events could be linked, by relation, and why not the others?
--
-- candidates are events that could have such an edge. If few are linked, the answers of other queries are incomplete;
-- reason is the most common cause.
-- $limit = 50: number of rows
WITH reasons AS (
    SELECT relation, reason.key AS reason, sum(reason.value) AS count
    FROM (SELECT relation, unnest(map_entries(unlinked)) AS reason FROM reports)
    GROUP BY ALL
)
SELECT
    reports.relation,
    sum(reports.linked)::BIGINT AS linked,
    sum(reports.candidates)::BIGINT AS candidates,
    round(sum(reports.linked) / nullif(sum(reports.candidates), 0), 4) AS share,
    count(DISTINCT reports.rank) AS ranks,
    (
        SELECT arg_max(reasons.reason, (reasons.count, reasons.reason))
        FROM reasons
        WHERE reasons.relation = reports.relation
    ) AS reason
FROM reports
GROUP BY reports.relation
ORDER BY share NULLS LAST, reports.relation
LIMIT $limit;
