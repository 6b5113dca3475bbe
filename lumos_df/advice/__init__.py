"""What to change in a job: a ranked list, each change with what it brings, how that is known and what shows it."""
