"""Parity of simulator and live fleet: one load recorded live, replayed, calibrated, compared."""
