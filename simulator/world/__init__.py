"""Scenarios made ready to run: pool, workload, faults, capacities."""
