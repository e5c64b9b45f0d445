"""How a replica comes back: restart, flush, probes that generate, re-admission by steps; pure."""
