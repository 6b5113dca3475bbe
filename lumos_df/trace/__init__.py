"""Trace files to stored tables."""
