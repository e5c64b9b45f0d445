"""Passive signals: deterioration relative to a replica's own past is reported; unknown is not judged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from contracts.rng import stream
from live.observe.metrics import STARTED, EngineReading, parse_reading
from live.observe.passive import ANSWERS, PAST, PassiveWatch
from tests.support.servers.engine_readings import Said

Shares = dict[str, float]
USUAL: Shares = {
    "length_stops": 0.3, "error_stops": 0.0, "repetition_stops": 0.0, "corrupted": 0.0,
    "tokens": 40.0, "hits": 0.6, "accepted": 0.7,
}  # fmt: skip


def readings(phases: list[tuple[int, Shares]], seed: int = 0, without: str = "") -> Iterator[EngineReading]:
    """Scrapes of one process, ``ANSWERS`` answers each, with laws that change from phase to phase."""
    rng, total = stream(seed, "passive"), dict.fromkeys(_NAMES, 0.0)
    for number, (scrapes, law) in enumerate(phases):
        for at in range(scrapes):
            total["answers"] += ANSWERS
            total["lengths"] += ANSWERS
            for name in ("length_stops", "error_stops", "repetition_stops", "corrupted"):
                total[name] += float(rng.binomial(ANSWERS, law[name]))
            total["answer_tokens"] += float(rng.poisson(law["tokens"], ANSWERS).sum())
            for whole, part, share in (
                ("cache_queries", "cache_hits", "hits"),
                ("drafted", "accepted", "accepted"),
            ):
                total[whole] += 500.0
                total[part] += float(rng.binomial(500, law[share]))
            signals = {name: value for name, value in total.items() if name != without}
            yield Said(read_at_s=float(1000 * number + at), signals=signals).reading()


_NAMES = (
    "answers", "lengths", "length_stops", "error_stops", "repetition_stops", "corrupted", "answer_tokens",
    "cache_queries", "cache_hits", "drafted", "accepted",
)  # fmt: skip


def alarmed(phases: list[tuple[int, Shares]], seed: int = 0, without: str = "") -> set[str]:
    """Signals that raised an alarm."""
    told: set[str] = set()
    watch = PassiveWatch(lambda _, signal: told.add(signal))
    for reading in readings(phases, seed, without):
        watch.receive({"a-0": reading})
    return told


WORSE: dict[str, tuple[Shares, str]] = {
    "answers never end": ({"length_stops": 1.0}, "length_stops"),
    "answers grow": ({"tokens": 120.0}, "long_answers"),
    "answers break off": ({"tokens": 8.0}, "short_answers"),
    "logits are NaN": ({"corrupted": 0.2}, "corrupted"),
    "repetition": ({"repetition_stops": 0.3}, "repetition_stops"),
    "errors": ({"error_stops": 0.3}, "error_stops"),
    "the cache is lost": ({"hits": 0.0}, "cache_misses"),
    "speculation collapses": ({"accepted": 0.1}, "drafts_rejected"),
}


@pytest.mark.parametrize("name", WORSE)
def test_what_is_worse_than_the_past_is_told_by_its_own_signal(name: str) -> None:
    """A collapse is found within 60 observations, and by the signal for it."""
    change, signal = WORSE[name]
    assert signal in alarmed([(PAST + 1, USUAL), (60, {**USUAL, **change})])


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_stays_as_it_was_is_left_alone(seed: int) -> None:
    """1,500 healthy observations raise no alarm, speculation and NaN counts among them."""
    assert alarmed([(1500, USUAL)], seed) == set()


def test_an_alarm_says_what_it_stands_on_and_when_it_is_over() -> None:
    """Replica, signal, unit and numbers are named; a new process ends it; written entries are dropped."""
    watch = PassiveWatch()
    for reading in readings([(PAST + 1, USUAL), (60, {**USUAL, "tokens": 120.0})]):
        watch.receive({"a-0": reading})
    (found,) = [one for one in watch.changes() if one.signal == "long_answers"]
    assert (found.replica, found.unit, found.began) == ("a-0", "tokens per answer", True)
    assert found.usual == pytest.approx(40.0, rel=0.1)
    assert found.usual < found.limit < found.recent
    assert found.evidence_nats >= found.threshold_nats
    assert 0 < found.observations <= 60
    watch.drop(len(watch.changes()))
    assert watch.changes() == []
    watch.receive({"a-0": Said(read_at_s=2e6, started_at_s=2.0).reading()})
    assert ("long_answers", False) in {(one.signal, one.began) for one in watch.changes()}


def test_what_a_server_does_not_export_is_unknown() -> None:
    """A missing counter is neither bad nor good, whatever the others show."""
    watch = PassiveWatch()
    for reading in readings([(PAST + 10, USUAL)], without="corrupted"):
        watch.receive({"a-0": reading})
    assert watch.alarms()["a-0", "corrupted"] is None
    assert watch.alarms()["a-0", "length_stops"] is False


def test_a_new_process_and_a_counter_that_fell_begin_anew() -> None:
    """Neither counts as a change of behaviour."""
    watch = PassiveWatch()
    scrapes = list(readings([(PAST + 5, USUAL)]))
    for reading in scrapes:
        watch.receive({"a-0": reading})
    fell = Said(read_at_s=1e6, signals=dict.fromkeys(_NAMES, 0.0)).reading()
    watch.receive({"a-0": fell})
    assert watch.alarms()["a-0", "length_stops"] is False
    restarted = Said(read_at_s=2e6, started_at_s=2.0).reading()
    watch.receive({"a-0": restarted})
    assert watch.alarms()["a-0", "length_stops"] is None


def test_signals_are_read_by_the_server_s_names() -> None:
    """Finish reasons are separate; engines of one server are added up; absent values stay absent."""
    name = 'vllm:request_success_total{engine="%d",finished_reason="%s",model_name="m"} %d'
    lines = [f"{STARTED} 5"]
    lines += [name % (engine, reason, 3) for engine in (0, 1) for reason in ("stop", "length", "error")]
    found = parse_reading("\n".join(lines) + "\n", 1.0).signals
    assert found == {"answers": 18.0, "length_stops": 6.0, "error_stops": 6.0}
    assert np.isclose(sum(found.values()), 30.0)
