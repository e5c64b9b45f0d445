"""Composition roots: the ``selvage`` command line, experiments, benchmarks and the set-up step.

They connect the other layers; nothing imports them. May use every layer.
"""
