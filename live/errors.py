"""What can go wrong in the live world on purpose; all are ``SelvageError`` and carry their next step."""

from __future__ import annotations

from contracts.errors import SelvageError


class LiveError(SelvageError):
    """A fleet, replica or gateway is not in the state that was asked for."""


class PlanError(LiveError):
    """A routing plan cannot be carried out as it stands; nothing was written."""


class ActuationError(LiveError):
    """The gateway refused a table or did not acknowledge it in time; the last one stays in force."""
