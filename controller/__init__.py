"""The controller: telemetry -> estimate -> judge -> propose -> shield -> plan, a pure function per tick.

Imports `contracts` alone. Time, telemetry and routes come in through the ports; nothing here sleeps,
prints or reads a clock, so the same code runs on the simulated, the local and the cluster fleet.
"""
