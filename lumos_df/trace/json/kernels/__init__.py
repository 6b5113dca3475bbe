"""The scanner: loops over bytes."""
