"""Drills on a cluster: admission, the pods that they strike, their records and their status."""
