"""A corpus in Python: answers as polars frames, pictures as Altair charts."""
