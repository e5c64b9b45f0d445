"""The vocabulary: documents, metrics, bounds, health, telemetry and episode records, pure and shared.

Imports nothing of this project, no clock, no random module, no engine: every other layer may use it.
"""
