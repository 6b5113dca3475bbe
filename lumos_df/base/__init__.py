"""What everything else stands on: errors, units, files that appear whole, worker processes, compiled kernels."""
