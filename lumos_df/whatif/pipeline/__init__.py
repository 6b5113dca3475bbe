"""A job of another number of pipeline stages."""
