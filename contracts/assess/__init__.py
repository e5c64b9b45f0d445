"""Judging measured samples offline: observations, limits, verdicts, bounds, proposals and the register."""
