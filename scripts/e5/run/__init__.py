"""A run of E5: what is run, its jobs, what is kept of them, and how it looks on a terminal."""
