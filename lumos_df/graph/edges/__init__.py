"""Edges between operators: one file an edge kind."""
