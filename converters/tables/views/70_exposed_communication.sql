-- Communication that no computation covers, for each rank and step.
CREATE VIEW exposed_communication AS
SELECT rank, step, start_ns, duration_ns, communication_ns, exposed_communication_ns,
    exposed_communication_ns / nullif(duration_ns, 0) AS share
FROM breakdown;
