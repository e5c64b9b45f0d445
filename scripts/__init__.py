"""Composition roots: the ``selvage`` command line, experiments, benchmarks and the set-up step.

They only wire; nothing imports them. May use every layer.
"""
