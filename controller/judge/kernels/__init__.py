"""Whole kernels: their standing, what their answers lose, what they share, when they are down."""
