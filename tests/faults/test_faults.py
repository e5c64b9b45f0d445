"""The fault catalogue, effects and schedules."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.scenario import OwnFaultKind
from faults.catalogue import CATALOGUE, Channel, is_neutral
from faults.effects import HEALTHY, ActiveFault, ReplicaEffect, apply, ladder_step
from faults.inside.document import ENGINE_KINDS, HTTP_KINDS, LOGIT_KINDS
from faults.schedule import FaultPlan, Shape, expand

KINDS = sorted(CATALOGUE)
SIMULATED = [kind for kind in KINDS if CATALOGUE[kind].channel is not Channel.LIVE_ONLY]
intensities = st.floats(0.0, 1.0)
positive_intensities = st.floats(0.01, 1.0)


def active(kind: str, intensity: float, dose: float | None = None) -> ActiveFault:
    """A fault of ``kind`` acting now, at its default dose unless said."""
    entry = CATALOGUE[kind]
    ladder = (1, 2, 4) if entry.measured else ()
    full = entry.dose.default if dose is None else dose
    return ActiveFault(kind=kind, intensity=intensity, dose=full, ladder=ladder)


def plan(kind: str = "slow", **changes: Any) -> FaultPlan:
    """A plan from 10 s to 100 s on two replicas."""
    measured = CATALOGUE[kind].measured
    base: dict[str, Any] = {
        "name": "f",
        "kind": kind,
        "replicas": (0, 1),
        "ladders": ((1, 2, 4),) * 2 if measured else ((),) * 2,
        "dose": CATALOGUE[kind].dose.default,
        "onset_s": 10.0,
        "ends_at_s": 100.0,
    }
    return FaultPlan(**(base | changes))


def test_documents_and_catalogue_name_the_same_kinds() -> None:
    """Every kind of ours that a scenario may name has exactly one catalogue entry."""
    assert sorted(get_args(OwnFaultKind)) == KINDS
    assert all(entry.name == name for name, entry in CATALOGUE.items())


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_says_how_to_inject_prove_and_undo(kind: str) -> None:
    """No form of a fault is empty, and its default dose is within its range and not neutral."""
    entry = CATALOGUE[kind]
    texts = (entry.live_injection, entry.kubernetes_form, entry.verification, entry.undo)
    assert all(texts)
    assert entry.dose.lowest <= entry.dose.default <= entry.dose.highest
    assert not is_neutral(kind, entry.dose.default)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_intensity_returns_the_nominal_effect_itself(kind: str) -> None:
    """A fault that is not acting changes nothing at all."""
    assert apply(HEALTHY, [active(kind, 0.0)]) is HEALTHY


@given(st.sampled_from([kind for kind in KINDS if not CATALOGUE[kind].measured]), intensities)
def test_neutral_dose_returns_the_nominal_effect_itself(kind: str, intensity: float) -> None:
    """At the neutral dose of its kind a fault changes nothing at any intensity."""
    neutral = CATALOGUE[kind].dose.neutral
    assert apply(HEALTHY, [active(kind, intensity, neutral)]) is HEALTHY


@given(st.sampled_from(SIMULATED), positive_intensities)
def test_a_fault_touches_one_field_only(kind: str, intensity: float) -> None:
    """A kind acts on its own channel: exactly one field of the effect departs from healthy."""
    effect = apply(HEALTHY, [active(kind, intensity)])
    changed = [f.name for f in fields(ReplicaEffect) if getattr(effect, f.name) != getattr(HEALTHY, f.name)]
    assert len(changed) == 1


@given(st.lists(st.tuples(st.sampled_from(KINDS), positive_intensities), max_size=4), st.randoms())
def test_order_of_faults_does_not_matter(found: list[tuple[str, float]], shuffler: object) -> None:
    """Several faults together have one effect, whichever is applied first (up to rounding)."""
    faults = [active(kind, intensity) for kind, intensity in found]
    turned = list(faults)
    shuffler.shuffle(turned)  # type: ignore[attr-defined]
    one, other = apply(HEALTHY, faults), apply(HEALTHY, turned)
    for field in fields(ReplicaEffect):
        assert getattr(one, field.name) == pytest.approx(getattr(other, field.name))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6, unique=True), intensities, intensities)
def test_measured_doses_climb_with_intensity(rungs: list[int], first: float, second: float) -> None:
    """A ladder in increasing drift is climbed in that order, and full intensity is the full dose."""
    ladder = tuple(sorted(rungs))
    low, high = sorted((first, second))
    assert ladder_step(ladder, low) <= ladder_step(ladder, high)
    assert ladder_step(ladder, 1.0) == ladder[-1]
    assert ladder_step(ladder, 0.0) == 0


def test_neutral_plans_make_no_change() -> None:
    """A schedule of neutral doses is empty."""
    plans = [plan(kind, dose=CATALOGUE[kind].dose.neutral) for kind in KINDS]
    assert expand(plans, 1000.0) == ()


@given(st.sampled_from(["ramp", "slow_onset"]), st.floats(1.0, 80.0), st.sampled_from(["slow", "requantise"]))
def test_rises_never_fall_before_the_end(shape: str, rise_s: float, kind: str) -> None:
    """A ramp and a slow onset grow monotonously from the onset to the full dose, then end."""
    changes = expand([plan(kind, shape=Shape(kind=shape, rise_s=rise_s))], 1000.0)
    grown = [change.intensity for change in changes[:-1]]
    assert grown == sorted(grown)
    assert grown[-1] == 1.0
    assert (changes[0].at_s, changes[-1].at_s, changes[-1].intensity) == (10.0, 100.0, 0.0)


@given(st.floats(5.0, 40.0), st.floats(0.1, 0.9))
def test_intermittent_faults_keep_their_duty(period_s: float, duty: float) -> None:
    """An intermittent fault acts for its duty share of each whole period."""
    shape = Shape(kind="intermittent", period_s=period_s, duty_ratio=duty)
    ends_at_s = 10.0 + 3 * period_s
    changes = expand([plan(ends_at_s=ends_at_s, shape=shape)], 1000.0)
    acting_s = sum(after.at_s - before.at_s for before, after in pairwise(changes) if before.intensity)
    assert acting_s == pytest.approx(3 * period_s * duty)


def test_silent_kinds_are_those_that_keep_answers_in_time() -> None:
    """Only numeric and observability faults are silent, and some that only live servers show."""
    silent = {entry.channel for entry in CATALOGUE.values() if entry.silent} - {Channel.LIVE_ONLY}
    assert silent == {Channel.NUMERIC, Channel.TELEMETRY, Channel.TRACE_FIELDS, Channel.FINGERPRINT}


def test_what_is_plugged_into_a_server_is_what_runs_inside_it() -> None:
    """Catalogue and injector name the same kinds in the same places; correlated faults are requantised."""
    plugged = {
        name: entry.live_injection
        for name, entry in CATALOGUE.items()
        if entry.live_injection in ("worker_extension", "middleware", "logits_processor")
    }
    assert set(plugged) - {"correlated"} == {*ENGINE_KINDS, *HTTP_KINDS}
    assert {name for name, place in plugged.items() if place == "middleware"} == set(HTTP_KINDS)
    assert {name for name, place in plugged.items() if place == "logits_processor"} == set(LOGIT_KINDS)
