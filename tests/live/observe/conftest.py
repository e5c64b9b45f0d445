"""Worlds of the simulator, for what both worlds must tell alike."""

from tests.simulator.conftest import build

__all__ = ["build"]
