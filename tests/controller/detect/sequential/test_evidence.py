"""What policies are shown of a detector's evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.registry import make_configuration
from tests.support.builders import make_fleet, make_layout
from tests.support.sequential_detectors import MEAN, RATE, feed, logged, sequential_detector, small_fleet
from tests.support.worlds import drift, run, script

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=4)
FLEET = make_fleet(LAYOUT)


def test_the_evidence_ratio_is_the_nearest_alarm() -> None:
    """Below 1 it is the largest log-evidence over its threshold, which it reaches with the alarm."""
    fleet = small_fleet(MEAN, replace(RATE, threshold=0.2))
    detector = sequential_detector(fleet)
    state, before, seen = detector.initial(1, 1, fleet.contract), 0.0, []
    for _ in range(60):
        verdicts, state = feed(detector, [np.array([[0.19]])], fleet.contract, state)
        ratio = float(detector.evidence_ratio(state, fleet.contract)[0, 0, 0])
        in_alarm, levels = bool(verdicts[0].alarm.any()), detector.plan.thresholds
        shares = logged(state)[0, 0, 0] / levels.kernel[0, 0]  # lowered thresholds are on other slices
        expected = max(0.0, float(shares[verdicts[0].alarm[0, 0, 0] == in_alarm].max()))
        assert ratio == pytest.approx(1.0 + min(expected, 1.0) if in_alarm else expected, abs=1e-12)
        assert (ratio >= 1.0) == in_alarm
        seen.append(ratio)
        before = ratio
    assert before >= 1.0
    assert 0.0 < seen[5] < 1.0
    assert max(seen) <= 2.0


def test_clauses_that_only_inform_show_no_evidence() -> None:
    """A soft L1 clause in alarm moves no traffic, so a policy is shown 0."""
    fleet = small_fleet(replace(RATE, level=1))
    detector = sequential_detector(fleet)
    verdicts, state = feed(detector, [np.full((1, 3), 0.9)] * 20, fleet.contract)
    assert verdicts[-1].alarm.all()
    assert not detector.evidence_ratio(state, fleet.contract).any()


@pytest.mark.parametrize("configuration", ["hysteresis", "burn-rate", "sequential"])
def test_every_detector_shows_its_alarms_to_policies(configuration: str) -> None:
    """While a kernel's alarm that moves traffic is in force, its ratio is at least 1, and 2 at most."""
    ticks = run(
        make_configuration(configuration, FLEET), script(LAYOUT, 200, drift(LAYOUT, [0, 1, 2, 3], 20.0))
    )
    shown = np.stack([decision.judgement.evidence_ratio[0] for decision in ticks.decisions])
    alarm = np.stack([decision.judgement.alarm[0].any(axis=2) for decision in ticks.decisions])
    assert alarm.any()
    assert bool((shown[alarm] >= 1.0).all())
    assert bool((shown >= 0.0).all())
    assert bool((shown <= 2.0).all())
    assert shown[:15].max() < 0.5


def test_hidden_evidence_is_shown_as_if_it_had_been_forgotten() -> None:
    """The ratio without some clauses is that of the memory after ``forget`` of them, bit for bit."""
    fleet = small_fleet(MEAN, replace(RATE, threshold=0.2))
    detector = sequential_detector(fleet)
    _, state = feed(
        detector, [np.array([[0.19]])] * 40, fleet.contract, detector.initial(1, 1, fleet.contract)
    )
    shown = detector.evidence_ratio(state, fleet.contract)
    assert shown.any()
    for clause in range(len(fleet.contract.clause_ids)):
        hidden = np.zeros(state["alarm"].shape, dtype=np.bool_)
        hidden[..., clause] = True
        without = detector.evidence_ratio_without(state, hidden, fleet.contract)
        forgotten = detector.evidence_ratio(detector.forget(state, hidden), fleet.contract)
        assert np.array_equal(without, forgotten)
    everything = np.ones(state["alarm"].shape, dtype=np.bool_)
    assert not detector.evidence_ratio_without(state, everything, fleet.contract).any()
