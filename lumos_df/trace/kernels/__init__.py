"""Loops over the rows of a trace."""
