"""Measuring kernels: prompts, reference, profiles; how each is run and what its steps take."""
