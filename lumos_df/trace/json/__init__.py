"""Bytes of Kineto JSON to columns."""
