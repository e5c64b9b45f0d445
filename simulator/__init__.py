"""The simulated world: workload, replicas, fleet, telemetry as seen, and the ground truth behind it.

May use `contracts`, `controller` and `faults`; never `policies` (the world does not know who drives).
"""
