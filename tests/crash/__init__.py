"""Crash consistency, on a node: daemons that die at chosen steps, and what becomes of their jobs.

`rig` has the daemon and its fuse, `scenes` what is done meanwhile and what must come of it. The package is
copied to the node and run there, `python3 -m tests.crash`; tests/test_crash.py does that.
"""
