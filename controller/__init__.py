"""Pure decisions: telemetry -> estimate -> judge -> propose -> shield -> plan, one `tick` at a time.

Imports `contracts` alone. Time, telemetry and routes come in through the ports; nothing here sleeps,
prints or reads a clock, so the same code runs on the simulated, the local and the cluster fleet.
"""
