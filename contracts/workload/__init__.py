"""Workload: arrival processes, request lengths and traces."""
