"""Benchmarks: what loom costs beside the bare tools, as ratios of one run. See README.md."""
