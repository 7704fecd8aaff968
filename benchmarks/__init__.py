"""Benchmarks: the cost of loom compared with the bare tools, as ratios of one run. See README.md."""
