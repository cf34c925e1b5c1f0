-- Steps with their duration.
CREATE VIEW step_times AS
SELECT rank, step, start_ns, end_ns, end_ns - start_ns AS duration_ns FROM steps;
