"""Expected errors of the live world; all are ``SelvageError`` and state a next step."""

from __future__ import annotations

from contracts.errors import SelvageError


class LiveError(SelvageError):
    """A fleet, replica or gateway is not in the requested state."""


class PlanError(LiveError):
    """A routing plan cannot be carried out; nothing was written."""


class ActuationError(LiveError):
    """The gateway refused a table, or did not acknowledge it in time; the last table stays in force."""
