"""Tests of the code inside a server that was started for drills."""
