"""The simulated world: workload, replicas, fleet, telemetry as the controller sees it, and ground truth.

May use `contracts`, `controller` and `faults`; never `policies` (the world does not know which policy drives
it).
"""
