"""Operators to dependencies to time: the execution graph of a job, its replay and its critical path."""
