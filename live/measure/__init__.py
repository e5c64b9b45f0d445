"""Measurement of kernels: prompts, reference, profiles, step times."""
