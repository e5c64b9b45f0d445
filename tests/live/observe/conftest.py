"""Worlds of the simulator, for facts that are equal in both worlds."""

from tests.simulator.conftest import build

__all__ = ["build"]
