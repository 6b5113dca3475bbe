"""Pipeline schedules: loops over stages, chunks and micro-batches."""
