"""Loops over slices of a timeline."""
