-- How long did torch.compile work, on which compilations?
--
-- A row for each compilation of a rank: phases is the number of its phases in the log, ran how many events ran its code.
-- $limit = 50: number of rows
SELECT rank, compile_id, start_ns, duration_ns, phases, ran
FROM compiles
ORDER BY duration_ns DESC NULLS LAST, rank, compile_id
LIMIT $limit;
