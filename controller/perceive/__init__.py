"""Telemetry to evidence: observations of each replica and kernel, and their age."""
