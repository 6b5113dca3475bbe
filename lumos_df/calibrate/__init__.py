"""A machine fitted to what was measured on it, and how far estimates are from measured runs."""
