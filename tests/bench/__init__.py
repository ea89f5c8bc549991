"""Benchmarks: ratios measured side by side in one run, never a test that can fail by being slow."""
