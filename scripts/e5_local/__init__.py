"""E5 on real servers: drills under every policy on one fleet, measured and reported as in the simulator."""
