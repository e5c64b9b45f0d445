"""Documentation pages that finished runs of E5 fill, and tables for a terminal."""
