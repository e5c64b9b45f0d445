"""Faults of live servers, steered from outside: start, inject, renew, undo, verify, find a dose."""
