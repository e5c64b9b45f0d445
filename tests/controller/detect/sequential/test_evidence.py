"""What policies are shown of a detector's evidence, and how rarely a broken kernel is called healthy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detect.calibration.laws import Empirical, Normal, ObservationLaw, Ones
from controller.detect.calibration.simulate import false_alarms
from controller.detect.sequential.evidence import healthy_threshold
from controller.detect.streams.eprocess import Start
from controller.detect.streams.protocol import StreamDetector
from policies.registry import make_configuration
from tests.reference.recovery_laws import MatchRecovery, MeanRecovery, ShiftRecovery
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.sequential_detectors import (
    MEAN,
    RATE,
    feed,
    logged,
    sequential_detector,
    small_fleet,
)
from tests.support.fleets.worlds import drift, run, script
from tests.support.run_lengths import arl_at_least

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


BROKEN: tuple[tuple[StreamDetector, ObservationLaw], ...] = (
    (MeanRecovery(null_mean=0.05, upper=1.0), Ones(rate=0.05)),
    (MeanRecovery(null_mean=1.0, upper=5.0), Empirical(values=np.array([0.5, 0.5, 2.0]))),
    (MatchRecovery(share=0.3), Ones(rate=0.3)),
    (ShiftRecovery(shift=1.5), Normal(mean=1.5)),
    (ShiftRecovery(shift=1.5), Normal(mean=-2.0)),
)


def called_healthy(
    detector: StreamDetector, law: ObservationLaw, units: int, confidence: float = 0.9
) -> float:
    """Share of 2,000 attempts that are ever called healthy within ``units``."""
    state, more = detector.initial(2000), law.source(np.random.default_rng(7), 2000)
    ever, present = np.zeros(2000, dtype=np.bool_), np.ones(2000, dtype=np.bool_)
    for row in more(units):
        detector.advance(state, row, present)
        ever |= state.statistic >= healthy_threshold(confidence)
    return float(ever.mean())


@pytest.mark.parametrize("detector, law", BROKEN, ids=[case[0].name for case in BROKEN])
def test_a_broken_kernel_is_rarely_called_healthy(detector: StreamDetector, law: ObservationLaw) -> None:
    """However often it is tested: at most 1 - confidence of the attempts, within the error of 2,000."""
    assert called_healthy(detector, law, 400) <= 0.1 + 3.0 * np.sqrt(0.09 / 2000)


@pytest.mark.parametrize(
    "detector, law, units",
    (
        (MeanRecovery(null_mean=0.05, upper=1.0), Ones(rate=0.0), 80),
        (MeanRecovery(null_mean=1.0, upper=5.0), Empirical(values=np.array([0.1, 0.2])), 20),
        (MatchRecovery(share=0.3), Ones(rate=0.0), 8),
        (ShiftRecovery(shift=2.0), Normal(), 12),
    ),
)
def test_a_healthy_kernel_is_recognised(detector: StreamDetector, law: ObservationLaw, units: int) -> None:
    """Nine attempts in ten succeed within the stated number of units."""
    assert called_healthy(detector, law, units) >= 0.9


def test_a_renewing_attempt_bounds_the_rate_of_false_returns() -> None:
    """With the sum over starts, broken kernels return at most once in 1 / (1 - confidence) units."""
    detector = MeanRecovery(null_mean=0.05, upper=1.0, start=Start.SUM)
    found = false_alarms(
        detector, healthy_threshold(0.995), Ones(rate=0.05), streams=500, samples=1000, seed=1
    )
    assert arl_at_least(found, 0.99) >= 200.0


@given(null=st.floats(0.005, 0.5), confidence=st.floats(0.5, 0.999))
def test_clean_units_needed_are_as_stated(null: float, confidence: float) -> None:
    """``units_when_clean`` clean units reach the confidence, on every path of the bets."""
    detector = MeanRecovery(null_mean=null, upper=1.0)
    units = detector.units_when_clean(confidence)
    state = detector.initial(1)
    for _ in range(units):
        detector.advance(state, np.zeros(1), np.ones(1, dtype=np.bool_))
    assert state.statistic[0] >= healthy_threshold(confidence) - 1e-9


def test_one_difference_ends_a_matching_attempt() -> None:
    """Without repeat noise a single differing probe ends the attempt; only a new attempt can succeed."""
    detector = MatchRecovery(share=0.3)
    state = detector.initial(1)
    for value in (0.0, 0.0, np.inf, *[0.0] * 500):
        detector.advance(state, np.array([value]), np.ones(1, dtype=np.bool_))
    assert state.statistic[0] < healthy_threshold(0.5)


def test_bad_settings_are_refused() -> None:
    """Confidences, ranges, shares and shifts outside their ranges are refused."""
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence"):
            healthy_threshold(wrong)
        with pytest.raises(ValueError, match="share"):
            MatchRecovery(share=wrong)
    with pytest.raises(ValueError, match="null mean"):
        MeanRecovery(null_mean=1.0, upper=1.0)
    with pytest.raises(ValueError, match="shift"):
        ShiftRecovery(shift=0.0)
