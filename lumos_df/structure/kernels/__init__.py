"""Loops over sequences of symbols."""
