"""Distance of a running server from its reference (KL divergence): per position, and as a table."""
