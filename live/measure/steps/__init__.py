"""Times of an engine's steps: measured through a server, fitted, their spread, and whether they agree."""
