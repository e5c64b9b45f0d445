"""Servers of tests: real, made up, hostile."""
