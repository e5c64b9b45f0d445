"""The cluster world: telemetry, actuation and an operator for Kubernetes.

Holds nothing yet. The layer exists so that its import rules are checked from the start: it may use `live`
and everything below, never `simulator`.
"""
