"""Thresholds for a declared run length: laws, simulation, calibration."""
