-- The thresholds of docs/thresholds.md by which views decide, one row.
-- Generated from the constants themselves by `make docs`; edit those.
CREATE VIEW _thresholds(
  -- probability: What comes about by accident so seldom is taken for none: rows that start, and silences that end, near the end of a row, and waits that all find one place.
  accident_share,
  -- usual launch calls: A launch call that lasts no longer did not wait.
  long_calls,
  -- power of size: So fast kernels that are slower than the roof come nearer to it beyond the largest that was measured.
  nearing
) AS
SELECT
  0.05::DOUBLE,
  10::DOUBLE,
  0.2::DOUBLE;
