"""From observations to alarms: detectors of broken clauses, and of drift from the certified baseline.

``detector`` what every detector of a contract is; ``window``, ``burn_rate`` and ``sequential`` the
detectors; ``certified_drift`` the comparison with certified values; ``clauses`` what watches each clause;
``budget`` false switches per slice-month into ARL0 per stream; ``traffic`` calibrated thresholds; ``sums``
what windows are judged by. ``streams`` holds sequential change detection with a declared mean run length to a
false alarm (ARL0, in observations); ``calibration`` what is needed to measure it.
"""
