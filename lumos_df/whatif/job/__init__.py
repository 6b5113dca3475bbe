"""The recorded job, and what is to change."""
