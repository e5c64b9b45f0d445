"""Scoring of episodes: the record that every world writes, and E5's measures of it."""
