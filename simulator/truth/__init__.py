"""What is true of the simulated fleet, for scoring alone."""
