"""E5 whose episodes are drills on real servers: what is planned, kept and reported alike on every target."""
