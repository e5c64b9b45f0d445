"""Re-admission on real servers: caches flushed, verifying probes, traffic in steps."""
