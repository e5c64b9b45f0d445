"""Re-admission of a replica: restart, flush, verifying probes, traffic in steps; a pure state machine."""
