"""The loops of the graph: forward in time, back along what was binding, along each thread."""
