"""Measuring kernels: back ends, prompts, reference, profiles."""
