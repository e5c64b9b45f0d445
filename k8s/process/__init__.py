"""The operator's process: kopf's watches and health checks, the Lease, metrics, and real telemetry."""
