"""What can go wrong with a drill call."""

from __future__ import annotations

from contracts.errors import SelvageError


class DrillError(SelvageError):
    """A drill call did not do what it was to do."""


class DrillRefusedError(DrillError):
    """The replica refused: it was not started for drills, or the call makes no sense; it says why."""


class ReplicaGoneError(DrillError):
    """Nobody answers at the replica's address any more: what was injected there is gone with it."""


class ReplicaSilentError(DrillError):
    """The replica did not answer in time."""


class DoseError(DrillError):
    """No dose gives the wanted effect."""
