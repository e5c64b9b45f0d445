"""Users' answers on their way into the telemetry record, and the port that receives them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

from contracts.errors import DocumentError
from contracts.telemetry import ProbeOutcome, ProbeSamples
from controller.initial import initial_state
from controller.loop import tick
from live.control.loop import Turn
from live.control.source import nothing_probed
from live.errors import LiveError
from live.observe.past import PAST
from live.observe.sampled import LEAST_TOKENS, SampledInbox
from live.probe.prober import Prober
from live.run.inbox import PATH, serve_inbox
from live.run.sampled_answers import USERS_NUMBER, Sampling, sampled
from policies.registry import make_configuration
from tests.support.documents.passive_contracts import CLAUSE, LAYOUT, answers_seen, passive_fleet
from tests.support.fleets.builders import make_fleet

RATE = 1000.0  # answers per second that are read: all of these tests
COLUMN = LAYOUT.probe_metrics.index("surprise_outside")


class Quiet:
    """A prober that only reports the statements of its replicas."""

    def __init__(self) -> None:
        self.stated = dict.fromkeys(LAYOUT.replicas, "build-1")

    def step(self, now_s: float) -> ProbeSamples:
        """No samples."""
        return nothing_probed(LAYOUT)


@dataclass(frozen=True)
class Judged:
    """The fields of a judgement that ``Sampling`` reads: evidence [B, K, S] and alarms [B, K, S, C]."""

    evidence_count: np.ndarray
    alarm: np.ndarray


@dataclass(frozen=True)
class Decided:
    """The fields of a decision that it reads."""

    judgement: Judged
    quarantined: np.ndarray


def turn(*, probes: float = 9.0, alarm: bool = False, away: bool = False) -> Turn:
    """A turn with this many probes of all slices; with an alarm, or without the first replica."""
    judged = Judged(np.full((1, 1, 2), probes), np.full((1, 1, 2, 1), alarm))
    state: Any = None
    decision: Any = Decided(judged, np.array([[away, False]]))
    return Turn(number=1, at_s=0.0, before=state, after=state, decision=decision)


class Bed:
    """A ``Sampling`` with its own clock."""

    def __init__(self, folder: Path, rate: float = RATE) -> None:
        self.inbox = SampledInbox(frozenset(LAYOUT.replicas), frozenset(LAYOUT.slices))
        self.prober = Quiet()
        self.one = Sampling(
            LAYOUT, self.prober, self.inbox, folder / "past.json", lambda: self.prober.stated, rate
        )
        self.now_s = 0.0

    def answers(self, *nats: float, replica: str = "half-0") -> ProbeSamples:
        """The results for answers with these surprises, each in its own tick."""
        found = [nothing_probed(LAYOUT)]
        for one in nats:
            told = {"replica": replica, "slice": "code", "logprobs": [-one] * LEAST_TOKENS}
            self.inbox.post(json.dumps(told).encode(), 7.0)
            self.now_s += 1.0
            found.append(self.one.step(self.now_s))
        return replace(
            found[0],
            **{
                name: np.concatenate([getattr(one, name) for one in found], axis=1)
                for name in ("replica", "slice", "prompt", "sampled_at_ms", "values", "valid", "outcome")
            },
        )

    def learn(self) -> None:
        """A past of surprises from 1 to 2 nats."""
        self.one.turn(turn())
        assert self.answers(*np.linspace(1.0, 2.0, PAST).tolist()).replica.size == 0


def test_answers_are_learned_first_and_judged_after(tmp_path: Path) -> None:
    """Learning gives no evidence; then a similar answer counts 0, and one on either side 1."""
    bed = Bed(tmp_path)
    bed.learn()
    found = bed.answers(1.5, 0.2, 2.8, replica="half-1")  # the past is the kernel's, not the replica's
    assert found.values[0, :, COLUMN].tolist() == [0.0, 1.0, 1.0]
    assert np.isnan(np.delete(found.values, COLUMN, axis=2)).all()
    assert found.replica.tolist() == [[1, 1, 1]]
    assert found.valid.all()


def test_users_answers_are_no_probes(tmp_path: Path) -> None:
    """They neither prove that a replica answers probes in time nor count for any known prompt."""
    bed = Bed(tmp_path)
    bed.learn()
    found = bed.answers(1.5)
    assert found.outcome.tolist() == [[int(ProbeOutcome.NONE)]]
    assert found.prompt.tolist() == [[USERS_NUMBER]]
    assert found.sampled_at_ms.tolist() == [[7000.0]]


@pytest.mark.parametrize("why", [{"alarm": True}, {"away": True}, {"probes": 0.0}])
def test_a_past_is_learned_only_where_all_is_well(tmp_path: Path, why: dict[str, Any]) -> None:
    """Not in alarm, not from a replica in quarantine, not before the first probe; and not before any turn."""
    bed = Bed(tmp_path)
    bed.answers(*[9.0] * PAST)
    bed.one.turn(turn(**why))
    bed.answers(*[9.0] * PAST)
    bed.learn()
    assert bed.answers(9.0).values[0, :, COLUMN].tolist() == [1.0]


def test_another_build_has_another_past_and_a_restart_has_the_same(tmp_path: Path) -> None:
    """The past belongs to the fingerprint that probes read."""
    bed = Bed(tmp_path)
    bed.learn()
    again = Bed(tmp_path)
    assert again.answers(9.0).values[0, :, COLUMN].tolist() == [1.0]
    again.prober.stated = dict.fromkeys(LAYOUT.replicas, "build-2")
    assert again.answers(9.0).replica.size == 0
    again.prober.stated = {}
    assert again.answers(9.0).replica.size == 0


def test_no_more_is_looked_at_than_the_budget_counts_with(tmp_path: Path) -> None:
    """At one answer per two seconds, sixty a minute give thirty observations and a few saved ones."""
    bed = Bed(tmp_path)
    bed.learn()
    slow = Bed(tmp_path, rate=0.5)
    assert 28 <= slow.answers(*[1.5] * 60).replica.size <= 34


def test_the_door_takes_numbers_and_says_what_else_it_expected(tmp_path: Path) -> None:
    """204 for numbers, 400 for a text that is not repeated, 404 elsewhere, 413 for what is too large."""
    inbox = SampledInbox(frozenset({"half-0"}), frozenset({"code"}))
    good = {"replica": "half-0", "slice": "code", "logprobs": [-1.0] * LEAST_TOKENS}
    with serve_inbox(inbox, 0) as url, httpx.Client() as client:
        assert url.startswith("http://127.0.0.1:")
        assert client.post(url, json=good).status_code == 204
        refused = client.post(url, json=good | {"text": "private"})
        assert (refused.status_code, "private" in refused.text) == (400, False)
        assert client.post(url.replace(PATH, "/v1/else"), json=good).status_code == 404
        assert announced(url, 99_999_999) == 413
        with pytest.raises(LiveError, match="choose another --sampled-port"):
            serve_inbox(inbox, int(url.split(":")[2].split("/")[0])).__enter__()
    assert inbox.taken == 1


def announced(url: str, length: int) -> int:
    """The answer to a post that declares this many bytes, before any of them is sent."""
    place = httpx.URL(url)
    with closing(HTTPConnection(place.host, place.port or 0, timeout=10.0)) as line:
        line.putrequest("POST", PATH)
        line.putheader("content-length", str(length))
        line.endheaders()
        return line.getresponse().status


def test_the_operator_says_so_twice(tmp_path: Path) -> None:
    """A port without a clause is refused; a clause without a port is reported, and nothing is accepted."""
    prober = cast("Prober", Quiet())
    plain = make_fleet()
    asked = make_fleet(LAYOUT)
    with pytest.raises(DocumentError, match="a clause that reads it"):
        sampled(plain, prober, tmp_path, 0).__enter__()
    with sampled(plain, prober, tmp_path, None) as found:
        assert (found.probes, found.notes, found.watchers) == (prober, (), ())
    with sampled(asked, prober, tmp_path, None) as found:
        assert found.probes is prober
        assert "--sampled-port" in found.notes[0]
    with sampled(asked, prober, tmp_path, 0) as found:
        url = found.notes[0].split()[-1]
        good = {"replica": "half-0", "slice": "code", "logprobs": [-1.0] * LEAST_TOKENS}
        assert httpx.post(url, json=good).status_code == 204
        assert found.probes.step(1.0).replica.size == 0


def test_a_shift_is_seen_by_the_controller_and_moves_nothing() -> None:
    """In the controller's own tick the clause is in alarm at its level, and the table is unchanged."""
    fleet = passive_fleet()
    setup = make_configuration("sequential", make_fleet(LAYOUT, contract=fleet.contract, rates=fleet.rates))
    place = fleet.contract.clause_ids.index(CLAUSE)
    state, alarmed = initial_state(setup, 1), []
    for at in range(1, 81):
        state, decision = tick(state, answers_seen(float(at), outside=at % 2), setup)
        alarmed.append(bool(decision.judgement.alarm[0, 0, :, place].any()))
        assert not decision.moved[0] or at == 1
        assert not decision.quarantined.any()
    assert not alarmed[0]
    assert alarmed[-1]
    assert decision.judgement.health[0, 0].max() > 0.0
    assert decision.judgement.level.max() == 0
