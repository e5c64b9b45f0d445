"""Which pods serve: the servers behind a backend, their slots, what leads to them, planned upgrades."""
