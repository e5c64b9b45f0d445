"""Experiment E5: its configurations, jobs, results and files."""
