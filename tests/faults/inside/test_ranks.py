"""Combining the answers of one engine's workers; a fake engine in place of vLLM's client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faults.inside.gate import CallRefusedError
from faults.inside.ranks import ask_ranks, joined


class Engine:
    """Answers as its workers would, after ``late_s``; records its calls."""

    def __init__(self, *answers: dict[str, Any], late_s: float = 0.0) -> None:
        self._answers, self._late_s = list(answers), late_s
        self.limits: list[float | None] = []

    async def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = ()
    ) -> list[dict[str, Any]]:
        """As vLLM's: one answer of each worker."""
        self.limits.append(timeout)
        await asyncio.sleep(self._late_s)
        return self._answers


def asked(engine: Engine, within_s: float = 5.0) -> dict[str, Any]:
    """The engine's combined answer."""
    return asyncio.run(ask_ranks(engine, "selvage_drill_status", within_s))


def status(hits: int | None, expired: list[str], left_s: float) -> dict[str, Any]:
    """Status of one worker with this many strikes of the fault f; None if it has ended."""
    faults = [] if hits is None else [{"name": "f", "kind": "slow", "hits": hits}]
    return {"faults": faults, "expired": expired, "lease_left_s": left_s}


def test_a_fault_has_struck_as_often_as_every_rank_says() -> None:
    """The least of all counts; a rank that ended it has none, and a fault that ended anywhere has ended."""
    both = asked(Engine(status(7, [], 2.0), status(5, ["g"], 1.5)))
    assert both["faults"] == [{"name": "f", "kind": "slow", "hits": 5}]
    assert (both["expired"], both["lease_left_s"]) == (["g"], 1.5)
    assert asked(Engine(status(7, [], 2.0), status(None, ["f"], 0.0)))["faults"][0]["hits"] == 0
    assert [rank["lease_left_s"] for rank in both["ranks"]] == [2.0, 1.5]


@pytest.mark.parametrize("changed", [0, 1])
def test_a_canary_changes_with_that_of_any_rank(changed: int) -> None:
    """One canary for all, clean only if each is; for an engine of one worker, that worker's."""
    clean: list[dict[str, Any]] = [{"canary": "a", "is_clean": 1}, {"canary": "b", "is_clean": 1}]
    wrong = [dict(rank) for rank in clean]
    wrong[changed] = {"canary": "c", "is_clean": 0}
    assert joined(clean)["canary"] == joined(clean)["canary"] != joined(wrong)["canary"]
    assert (joined(clean)["is_clean"], joined(wrong)["is_clean"]) == (1, 0)
    assert joined(clean[:1])["canary"] == "a"


@pytest.mark.parametrize("refusing", [0, 1])
def test_one_worker_that_refuses_refuses_for_all(refusing: int) -> None:
    """A fault on some ranks only is not the requested fault."""
    answers: list[dict[str, Any]] = [{"layers": 4}, {"layers": 4}]
    answers[refusing] = {"refused": "no layer of that name"}
    with pytest.raises(CallRefusedError, match="no layer"):
        asked(Engine(*answers))


def test_an_engine_is_given_no_limit_of_time() -> None:
    """A limit would give up on one worker and take its late answer for another call; its caller fails."""
    engine = Engine({"canary": "a"}, late_s=5.0)
    with pytest.raises(CallRefusedError, match=r"within 0\.05 s"):
        asked(engine, 0.05)
    assert engine.limits == [None]
