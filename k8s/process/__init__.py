"""The operator's process: kopf's watches and health, the Lease, metrics, and real telemetry."""
