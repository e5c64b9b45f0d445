"""Detectors of single streams, and the thresholds that their evidence is tested against.

``protocol`` is their protocol, with guaranteed thresholds; ``eprocess`` and ``ranks`` are the e-detectors,
``classical`` the baselines, ``passes`` their compiled loops.
"""
