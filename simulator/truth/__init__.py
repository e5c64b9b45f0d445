"""Ground truth of the simulated fleet, for scoring alone."""
