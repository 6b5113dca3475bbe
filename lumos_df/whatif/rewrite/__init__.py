"""A trace's graph with another sequence of blocks, in another order, or with more overlap."""
