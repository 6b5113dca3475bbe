-- The job of each trace, for views to join by trace_id.
-- On its left no row is lost or doubled, and a filter on trace_id reaches both sides.
CREATE VIEW _job(
  -- Trace.
  trace_id,
  -- Job.
  job
) AS
SELECT trace_id, job FROM traces;
