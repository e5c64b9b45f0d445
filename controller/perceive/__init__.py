"""Telemetry to evidence: what each replica showed, and how old it is."""
