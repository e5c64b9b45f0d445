"""Learning and judging from logs alone."""
