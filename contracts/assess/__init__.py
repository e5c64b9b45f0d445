"""Offline assessment of measured samples: observations, limits, verdicts, bounds, proposals, register."""
