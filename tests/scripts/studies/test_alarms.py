"""Alarms of single clauses: which evidence raises them, and which does not."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.rng import stream
from contracts.telemetry import ProbeOutcome, ProbeSamples
from controller.detect.budget import split_budget
from scripts.studies.alarms import SILENT, AlarmWatch, live_probe_fleet

FLEET = live_probe_fleet(("code", "prose"), 2.0)
NAMES = FLEET.layout.probe_metrics


def one(outcome: ProbeOutcome = ProbeOutcome.ANSWERED, **values: float) -> ProbeSamples:
    """One probe with this result."""
    row = [values.get(name.partition("@")[0], np.nan) for name in NAMES]
    return ProbeSamples(
        replica=np.zeros((1, 1), dtype=np.int64),
        slice=np.zeros((1, 1), dtype=np.int64),
        prompt=np.zeros((1, 1), dtype=np.int64),
        sampled_at_ms=np.zeros((1, 1)),
        values=np.array([[row]]),
        valid=np.array([[outcome is ProbeOutcome.ANSWERED]]),
        outcome=np.array([[int(outcome)]], dtype=np.int8),
        latency_ms=np.ones((1, 1)),
    )


def first(probes: list[ProbeSamples]) -> tuple[str, int] | None:
    """The source of the first alarm, and after how many probes."""
    watch = AlarmWatch(FLEET)
    for at, probe in enumerate(probes, start=1):
        watch.take(probe, float(at), at)
        if watch.first is not None:
            return watch.first[0], at
    return None


@pytest.mark.parametrize(
    ("column", "value", "clause"),
    [
        ("generation_kl", 0.1, "N-generation-kl"),
        ("generation_gap", 1.5, "N-generation-gap"),
        ("pair_kl", 0.1, "N-pair-kl"),
        ("pair_gap", 1.5, "N-pair-gap"),
        ("decode_kl", 0.1, "N-decode-kl"),
        ("greedy_gap", 1.5, "N-greedy-gap"),
        ("answer_broken", 1.0, "S-answer-broken"),
        ("grammar_invalid", 1.0, "S-grammar"),
    ],
)
def test_each_kind_of_damage_raises_its_own_clause(column: str, value: float, clause: str) -> None:
    """A handful of damaged answers is enough, a single one is not."""
    found = first([one(ProbeOutcome.ANSWERED, **{column: value})] * 40)
    assert found is not None
    assert found[0] == clause
    assert 2 <= found[1] <= 12


def test_a_crossed_answer_alarms_at_once_and_silence_after_a_few() -> None:
    """A hard clause at null rate 0 needs one observation; probes without an answer count in a row."""
    assert first([one(nonce_crossed=0.0), one(nonce_crossed=1.0)]) == ("O-nonce", 2)
    silent = [one(ProbeOutcome.TIMED_OUT)] * SILENT
    assert first(silent) == ("no answer", SILENT)
    assert first([*silent[1:], one(answer_broken=0.0), *silent[1:]]) is None
    assert first([one(ProbeOutcome.NONE)] * 10) is None


def test_a_server_that_is_well_raises_nothing() -> None:
    """10,000 probes with the noise of half-precision kernels."""
    rng = stream(0, "alarms")
    healthy = [
        one(
            generation_kl=float(rng.exponential(1e-4)),
            generation_gap=float(rng.exponential(0.02)) * float(rng.random() < 0.3),
            pair_kl=float(rng.exponential(1e-6)),
            answer_broken=0.0,
            nonce_crossed=0.0,
        )
        for _ in range(10_000)
    ]
    assert first(healthy) is None


def test_generations_have_their_place_in_the_budget() -> None:
    """Every generation clause has streams, and all streams together stay within the contract's budget."""
    split = split_budget(FLEET.contract, FLEET.layout, FLEET.rates)
    booked = {line.clause for line in split.lines}
    assert {"N-generation-kl", "N-pair-gap", "N-decode-kl", "N-greedy-gap", "S-answer-broken"} <= booked
    assert split.alarms_per_slice_month <= split.budget.per_slice_month + 1e-9
    assert "O-nonce" in split.at_once
