"""From observations to alarms: detectors of broken clauses, and of drift from the certified baseline.

``detector`` is the protocol of all detectors of a contract; ``window``, ``burn_rate`` and ``sequential`` are
the detectors; ``certified_drift`` compares with certified values; ``clauses`` assigns a test to each clause;
``budget`` splits false switches per slice-month into an ARL0 per stream; ``traffic`` has calibrated
thresholds; ``sums`` has the statistics of windows. ``streams`` holds sequential change detection with a
declared mean run length to a false alarm (ARL0, in observations); ``calibration`` measures it.
"""
