"""Servers that answer probes with an error status: the cause, the pause before the next probe, the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import numpy as np
import pytest

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import ProbeOutcome
from live.observe.scrape_notes import UNREAD, ScrapeWatch
from live.probe.prober import ProbePlan, Prober
from live.probe.schedule import ProbeBudget
from live.probe.statuses import LONGEST_S, retry_after_s
from tests.live.probe.test_prober import PROMPT, REFERENCE, answer

LAYOUT = FleetLayout(
    kernels=("a",),
    slices=("prose",),
    replicas=("a-0",),
    replica_kernel=np.zeros(1, dtype=np.int64),
    probe_metrics=("kl_mean@top_k",),
    known_good=0,
)
PLAN = ProbePlan(prompts=[PROMPT], references=[REFERENCE], budget=ProbeBudget(tokens_per_s=30.0))
Respond = Callable[[httpx.Request], httpx.Response]


@dataclass
class Bed:
    """A prober of one server with the present response ``respond``, and its own clock."""

    prober: Prober
    respond: list[Respond]
    asked: list[float] = field(default_factory=list)
    now_s: float = 0.0

    def outcomes(self, respond: Respond, seconds: float) -> list[ProbeOutcome]:
        """Results of the probes of this many seconds, five polls a second."""
        self.respond[:] = [respond]
        found: list[int] = []
        for _ in range(int(5 * seconds)):
            self.now_s += 0.2
            before = self.prober.sent_tokens["a-0"]
            found += self.prober.step(self.now_s).outcome[0].tolist()
            if self.prober.sent_tokens["a-0"] > before:
                self.asked.append(self.now_s)
            for flight in self.prober._flying:
                flight.answer.result()
        return [ProbeOutcome(one) for one in found]


@contextmanager
def bed() -> Iterator[Bed]:
    """A test bed, until it is closed."""
    respond: list[Respond] = []
    client = httpx.Client(transport=httpx.MockTransport(lambda request: respond[0](request)))
    with Prober(LAYOUT, PLAN, {"a-0": "http://a"}, "m", 0.0, client) as prober:
        yield Bed(prober, respond)


def says(status: int, **headers: str) -> Respond:
    """A server that answers with this status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(status, headers=named)


def well(_: httpx.Request) -> httpx.Response:
    """A server that answers."""
    return httpx.Response(200, json=answer())


@pytest.mark.parametrize(
    ("status", "never_answered", "answered_before"),
    [
        (400, ProbeOutcome.UNREADABLE, ProbeOutcome.FAILED),  # fewer log-probabilities than are asked for
        (404, ProbeOutcome.UNREADABLE, ProbeOutcome.FAILED),  # chat alone, a path in front, another model
        (308, ProbeOutcome.UNREADABLE, ProbeOutcome.FAILED),  # to https, and redirects are not followed
        (401, ProbeOutcome.UNREADABLE, ProbeOutcome.UNREADABLE),
        (403, ProbeOutcome.UNREADABLE, ProbeOutcome.UNREADABLE),
        (429, ProbeOutcome.NONE, ProbeOutcome.NONE),
        (500, ProbeOutcome.FAILED, ProbeOutcome.FAILED),
        (503, ProbeOutcome.FAILED, ProbeOutcome.FAILED),
    ],
)
def test_a_server_that_never_answered_a_probe_does_not_count_as_failing(
    status: int, never_answered: ProbeOutcome, answered_before: ProbeOutcome
) -> None:
    """A server without such requests is not broken; a server that had them and refuses them now is."""
    with bed() as fresh:
        assert set(fresh.outcomes(says(status), 5.0)) == {never_answered}
    with bed() as changed:
        assert ProbeOutcome.ANSWERED in changed.outcomes(well, 2.0)
        assert changed.outcomes(says(status), 5.0)[-1] == answered_before


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_respected(status: int) -> None:
    """No probe before the stated time, and probes again after it."""
    with bed() as one:
        one.outcomes(says(status, retry_after="7"), 1.0)
        assert len(one.asked) == 1
        one.outcomes(well, 20.0)
        assert one.asked[1] >= one.asked[0] + 7.0
        assert len(one.asked) > 10


def test_retry_after_is_bounded() -> None:
    """Seconds and dates are understood, anything else means no pause, and no pause exceeds the maximum."""
    later = datetime.now(UTC) + timedelta(seconds=20.0)
    assert retry_after_s("5") == 5.0
    assert 15.0 < retry_after_s(format_datetime(later, usegmt=True)) <= 20.0
    assert retry_after_s(format_datetime(later - timedelta(days=1), usegmt=True)) == 0.0
    assert retry_after_s("9" * 400) == retry_after_s("3600") == LONGEST_S
    for text in ("", "soon", "-5", "1e3", "Fri, 99 Foo", "²"):
        assert retry_after_s(text) == 0.0


@pytest.mark.parametrize(
    ("respond", "told"),
    [
        (says(404), "prefill: HTTP 404: it has no /v1/completions there, or no such model (--model)"),
        (says(400), "--max-logprobs 20"),
        (says(401), "--api-key-env"),
        (says(308, location="https://a/"), "it redirects: name the address"),
        (says(429), "it is busy"),
        (lambda _: httpx.Response(200, json=answer(positions=3)), "2 positions expected, 3 answered"),
        (lambda _: httpx.Response(200, json={"choices": []}), "no log-probabilities of the prompt"),
    ],
)
def test_a_server_of_which_probes_tell_nothing_is_named_with_the_next_step(
    respond: Respond, told: str
) -> None:
    """Once, until it answers."""
    with bed() as one:
        watch = ScrapeWatch(unprobed=lambda: one.prober.uninformative)
        for _ in range(4 * UNREAD):
            one.outcomes(respond, 1.0)
            watch.receive({})
        (note,) = watch.changes()
        assert (note.replica, note.what, note.began) == ("a-0", "unprobed", True)
        assert told in note.told
        one.outcomes(well, 2.0)
        watch.receive({})
        assert [note.began for note in watch.changes()] == [True, False]


def test_errors_are_judged_and_not_excused() -> None:
    """A server that fails, refuses or hangs has no such note: that is evidence."""
    with bed() as one:
        one.outcomes(says(500), 5.0)
        assert one.prober.uninformative == {}
