"""Loops over configurations."""
