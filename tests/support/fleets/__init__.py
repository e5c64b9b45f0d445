"""Fleets of tests: as arrays, simulated, scripted."""
