"""Detectors of single streams, and the thresholds that their evidence is tested against.

``protocol`` what they are, with guaranteed thresholds; ``eprocess`` and ``ranks`` the e-detectors,
``classical`` the baselines, ``passes`` their compiled loops.
"""
