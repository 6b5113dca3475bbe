-- What is known of each kind of collective.
-- Generated from lumos_df/schema/collective_kinds.py by `make docs`; edit that file.
CREATE VIEW _collective_kinds(
  -- What tables call it.
  collective,
  -- nccl-tests' busbw is this times (n-1)/n of algbw; 0: the same.
  rounds,
  -- Whether its members end at the same moment on all ranks.
  together
) AS
VALUES
  ('all_reduce', 2, true),
  ('all_gather', 1, true),
  ('reduce_scatter', 1, true),
  ('all_to_all', 1, true),
  ('send_recv', 0, false),
  ('broadcast', 0, false),
  ('barrier', 0, true),
  ('scatter', 1, false),
  ('gather', 1, false),
  ('reduce', 0, false),
  ('send', 0, false),
  ('recv', 0, false);
