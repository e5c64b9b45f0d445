"""Scenarios compiled to run: pool, workload, faults, capacities."""
