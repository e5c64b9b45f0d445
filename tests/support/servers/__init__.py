"""Servers of tests: real, fake, hostile."""
