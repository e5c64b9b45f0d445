"""Tests of the client that injects faults."""
