"""Probes that end at the moment in which the prober polls the open ones."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from contracts.telemetry import ProbeOutcome
from live.probe.kinds import Asking, GenerationPrompt
from live.probe.prefill import ProbeAnswer
from live.probe.schedule import Lane
from tests.support.servers.generating import lane_prober


class _Long:
    """A kind of the long lane that is never sent."""

    name, lane = "long", Lane.LONG

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """Almost none."""
        return len(prompt.token_ids)

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """No values."""
        del prompt, asking
        return {}


class _EndsMeanwhile(Future[ProbeAnswer]):
    """A future that is unfinished at the first poll and finished at the second."""

    asked = 0

    def done(self) -> bool:
        """Whether it has ended."""
        self.asked += 1
        return self.asked > 1


class _Executor:
    """Returns futures that end while they are polled."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, *_: object) -> Future[ProbeAnswer]:
        """A future with an answer."""
        future = _EndsMeanwhile()
        future.set_result(
            ProbeAnswer(
                sent_at_s=0.0,
                latency_ms=1.0,
                outcome=ProbeOutcome.ANSWERED,
                values=None,
                named={"pair_gap": 0.25},
            )
        )
        return future

    def shutdown(self, **_: object) -> None:
        """Do nothing."""


def test_a_probe_that_ends_while_the_prober_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives at the next step, and its lane is free again."""
    monkeypatch.setattr("live.probe.prober.ThreadPoolExecutor", _Executor)
    with lane_prober(_Long()) as prober:
        landed = [prober.step(100.0 + at).outcome.size for at in range(5)]
    assert landed == [0, 0, 1, 0, 1]
