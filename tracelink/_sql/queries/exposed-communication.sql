-- How much communication does computation not cover, on which rank and in which step?
--
-- communication_ns is the time in which communication runs on the devices of the rank, exposed_ns the part of it without
-- any computation, and share that part of the step. The numbers are those of `tracelink summary`.
-- $limit = 50: number of rows
SELECT
    rank,
    step,
    duration_ns,
    communication_ns,
    exposed_communication_ns AS exposed_ns,
    round(share, 4) AS share
FROM exposed_communication
ORDER BY exposed_ns DESC, rank, step
LIMIT $limit;
