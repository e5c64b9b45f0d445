"""The thread that checks a lease inside the engine: no fault is ever in force without it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from faults.inside.document import fault_of
from faults.inside.lease import lease_for, write_lease

# Importing vLLM alone takes longer than a test may on a busy machine.
pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]


class _Worker:
    """The wrapped part of a worker."""

    def execute_model(self) -> None:
        """Do nothing."""


class _Emptied(dict[str, Any]):
    """The active faults; after the first check finds them empty, another fault is injected at once."""

    def __init__(self, then: Any) -> None:
        super().__init__()
        self._then = then

    def __bool__(self) -> bool:
        found = len(self) > 0
        if not found and self._then is not None:
            then, self._then = self._then, None
            then()
        return found


def test_a_fault_that_comes_in_while_the_watch_ends_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with its lease, though no further engine step runs."""
    from faults.inside import engine
    from faults.inside.engine_faults import EngineFault

    monkeypatch.setattr(engine, "_WATCH_S", 0.01)
    monkeypatch.setattr(engine.EngineDrill, "canary", lambda _: "same")
    drill = engine.EngineDrill(_Worker(), tmp_path)
    spec = fault_of({"name": "late", "kind": "latency", "dose": 1.0})

    def comes_in() -> None:
        drill._active["late"] = EngineFault(spec)
        drill._attend()

    drill._active = _Emptied(comes_in)
    drill._watching = True
    write_lease(tmp_path, lease_for(0.05))
    drill._watch()
    until_at_s = time.monotonic() + 180.0
    while len(drill._active):
        assert time.monotonic() < until_at_s, "nobody watches its lease"
        time.sleep(0.01)
    assert drill.expired == ["late"]
