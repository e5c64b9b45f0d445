"""Sequential change detection with a declared mean run length to a false alarm (ARL0, in samples).

``protocol`` what a detector is; ``eprocess``, ``ranks``, ``paired`` the e-detectors; ``classical`` the
baselines; ``calibrate`` thresholds, guaranteed or calibrated; ``budget`` false switches per slice-month
into ARL0 per stream; ``recovery`` evidence of health; ``streams`` the fold of probes into streams;
``laws``, ``simulate``, ``scoring`` what is needed to measure all that.
"""
