"""Whole kernels: standing, loss of their answers, faults that they share, and outages."""
