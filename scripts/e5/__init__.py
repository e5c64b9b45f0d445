"""Experiment E5: its suites and its policy configurations, and the rooms that run, judge and report them."""
