"""Simulated telemetry: scrapes, gateway counts and probes of the simulated fleet."""
