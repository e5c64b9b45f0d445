"""Experiment E5: its suites and policy configurations, and the packages that run, score and report it."""
