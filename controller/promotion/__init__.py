"""Promotion of a candidate kernel: offline, shadow, canary, full; a pure state machine."""
