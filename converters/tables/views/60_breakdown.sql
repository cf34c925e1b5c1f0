-- What each step of each rank consists of, as `tracelink summary` divides it: computation covers communication, both
-- cover copies, and what is left is idle. The parts add up to the duration. They are times of operators (`work`) where a
-- rank has no work on devices.
CREATE VIEW breakdown AS
SELECT rank, step, start_ns, end_ns - start_ns AS duration_ns, work, compute_ns, exposed_communication_ns,
    exposed_copy_ns, idle_ns, communication_ns, copy_ns
FROM steps
WHERE work <> 'nothing';
