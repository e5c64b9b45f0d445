"""One run of E5: its plan, its jobs, the stored results, and progress on a terminal."""
