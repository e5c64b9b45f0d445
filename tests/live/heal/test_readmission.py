"""Returning replicas, with scripted menders: held back, admitted in steps, held back again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.healing.records import Flush, HealingTerms
from live.heal.mender import LIMITS, ServerMender, Verification, disagreement
from live.heal.readmission import Readmissions
from live.probe.answers import Line
from live.probe.golden_answers import GoldenAnswers
from live.probe.kinds import GenerationPrompt

TERMS = HealingTerms(verify_probes=4, readmit_over_s=8.0, steps=4, wait_s=2.0)
PROMPT = GenerationPrompt(number=1, slice="code", token_ids=(1, 2, 3), max_tokens=4)


@dataclass
class ScriptedMender:
    """``live.heal.playbook.Mender`` that records its calls and fails the given probes."""

    fails: frozenset[int] = frozenset()
    told: list[str] = field(default_factory=list)

    def restart(self) -> tuple[bool, str]:
        """Record the call."""
        self.told.append("restart")
        return True, ""

    def flush(self) -> tuple[Flush, str]:
        """Record the call."""
        self.told.append("flush")
        return Flush.FLUSHED, ""

    def probe(self, number: int) -> tuple[bool, str]:
        """As scripted."""
        self.told.append("probe")
        good = number not in self.fails
        return good, "" if good else "gap 3 nats"


class AtOnce(Executor):
    """An executor that runs each task at once."""

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Run it; the result is ready at once."""
        done: Future[Any] = Future()
        done.set_result(fn(*given, **named))
        return done


def returning(mender: ScriptedMender, kept: Path | None = None) -> Readmissions:
    """Replicas a and b, with one common mender."""
    return Readmissions(lambda _: mender, TERMS, kept, ("a", "b"), AtOnce())


def shares_of(returns: Readmissions, seconds: int) -> list[float]:
    """Shares of replica a, which returns in the first second; 1 if it is not limited."""
    found = []
    for now in range(seconds):
        returns.turn(float(now), ["a"] if now == 0 else [], [])
        found.append(returns.shares.get("a", 1.0))
    return found


def test_a_replica_comes_back_by_steps_after_its_probes_agreed() -> None:
    """A flush, then four probes without traffic, then steps of a fifth with a probe in each."""
    mender = ScriptedMender()
    shares = shares_of(returning(mender), 20)
    assert mender.told == ["flush", *["probe"] * 8]
    assert sorted(set(shares)) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert shares == sorted(shares)


def test_a_probe_that_disagrees_takes_the_traffic_back() -> None:
    """The sixth probe fails within the steps: nothing for two seconds, then all of it again."""
    mender = ScriptedMender(fails=frozenset({5}))
    shares = shares_of(returning(mender), 40)
    fell = next(at for at in range(1, 40) if shares[at] < shares[at - 1])
    assert shares[fell : fell + 2] == [0.0, 0.0]
    assert shares[-1] == 1.0
    assert mender.told.count("flush") == 2


def test_a_replica_quarantined_again_is_no_longer_returning() -> None:
    """Its share is forgotten, and its next return begins with a flush."""
    mender = ScriptedMender()
    returns = returning(mender)
    returns.turn(0.0, ["a", "b"], [])
    returns.turn(1.0, [], ["a"])
    assert set(returns.shares) == {"b"}
    assert returns.turn(2.0, ["a"], []) != ()
    assert returns.shares["a"] == 0.0


def test_another_controller_restarts_the_returns_of_the_last_one(tmp_path: Path) -> None:
    """After an end in the middle, the next one limits the same replica; unknown names are left out."""
    kept = tmp_path / "healing.json"
    returning(ScriptedMender(), kept).turn(0.0, ["a"], [])
    again = returning(ScriptedMender(), kept)
    again.turn(0.0, [], [])
    assert again.shares == {"a": 0.0}
    for rubbish in ('["z"]', '["a", 7]', "{"):
        kept.write_text(rubbish)
        other = returning(ScriptedMender(), kept)
        other.turn(0.0, [], [])
        assert other.shares == {}


def test_a_file_that_cannot_be_written_is_said_and_holds_the_replica_back_all_the_same(
    tmp_path: Path,
) -> None:
    """A full disk admits no unverified replica and hides no line of the tick; writing is repeated."""
    place = tmp_path / "later"
    returns = returning(ScriptedMender(), place / "healing.json")
    said = returns.turn(0.0, ["a"], [])
    assert len(said) >= 2
    assert "not written" in said[-1]
    assert returns.shares == {"a": 0.0}
    assert not any("not written" in line for line in returns.turn(1.0, [], []))  # reported once
    place.mkdir()
    returns.turn(2.0, [], [])
    assert (place / "healing.json").read_text() == '["a"]\n'


class Failing(Executor):
    """An executor with every task failing unforeseen."""

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """A failure."""
        failed: Future[Any] = Future()
        failed.set_exception(RuntimeError("out of threads"))
        return failed


def test_an_unforeseen_failure_of_a_mender_delays_no_other_replica() -> None:
    """Its replica begins anew, with the reason reported and without traffic."""
    returns = Readmissions(lambda _: ScriptedMender(), TERMS, None, ("a", "b"), Failing())
    said = [line for now in range(20) for line in returns.turn(float(now), ["a", "b"] if not now else [], [])]
    assert {line[0] for line in said if "RuntimeError" in line} == {"a", "b"}
    assert returns.shares == {"a": 0.0, "b": 0.0}


def mender_of(status: int, restarts: Callable[[], bool] | None = None) -> ServerMender:
    """A mender of a server that answers its flush with ``status``."""
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status)))
    golden = GoldenAnswers(answers={})
    verification = Verification(prompts=(PROMPT,), golden=golden, limit_s=1.0)
    return ServerMender(
        line=lambda: Line(client, "http://server", "m"), verification=verification, restarts=restarts
    )


@pytest.mark.parametrize(
    ("status", "restarts", "expected"),
    [
        (200, None, Flush.FLUSHED),
        (404, None, Flush.FAILED),
        (403, None, Flush.FAILED),
        (404, lambda: True, Flush.RESTARTED),
        (404, lambda: False, Flush.FAILED),
        (500, lambda: True, Flush.FAILED),
    ],
)
def test_a_flush_is_what_the_server_offers(
    status: int, restarts: Callable[[], bool] | None, expected: Flush
) -> None:
    """The endpoint if there is one, else a restart if it is allowed; without either none."""
    assert mender_of(status, restarts).flush()[0] is expected


def test_a_cache_that_cannot_be_flushed_waits_for_another_process() -> None:
    """If restarts are not allowed, a replica stays out until its process start time changes."""
    began = ["", "50.0", "50.0", "90.0"]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/metrics":
            return httpx.Response(404)
        return httpx.Response(200, text=f"up 1.0\nprocess_start_time_seconds {began[0]}\n")

    client = httpx.Client(transport=httpx.MockTransport(answer))
    golden = GoldenAnswers(answers={})
    verification = Verification(prompts=(PROMPT,), golden=golden, limit_s=1.0)

    one = ServerMender(line=lambda: Line(client, "http://server", "m"), verification=verification)
    found = []
    while began:
        how, told = one.flush()
        found.append(how)
        assert how is Flush.RESTARTED or "restart it" in told
        began.pop(0)
    assert found == [*[Flush.FAILED] * 3, Flush.RESTARTED]


def test_a_server_that_answers_no_probe_is_not_verified() -> None:
    """An error status is a failed probe, and the reason holds no text of the prompt."""
    good, told = mender_of(500).probe(0)
    assert (good, told) == (False, "HTTP 500")


def test_agreement_is_every_column_within_its_limit() -> None:
    """At its limit a column agrees, beyond it the pair does not, and nothing measured is no agreement."""
    at_limit = dict(LIMITS)
    assert disagreement(at_limit) == (True, "")
    for name, most in LIMITS.items():
        good, told = disagreement(at_limit | {name: most + 0.01})
        assert not good
        assert name in told
    assert disagreement({})[0] is False
