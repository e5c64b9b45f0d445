"""Replayed incidents: every draw is a fault that a live server accepts, the same from the same seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.client.replica import wire_form
from faults.drill.incidents import INCIDENTS, FaultPlace, IncidentClass, drawn_fault
from faults.inside.document import fault_of

places = st.builds(
    FaultPlace,
    block_tokens=st.sampled_from((8, 16, 32, 128)),
    context_tokens=st.integers(256, 8192),
    slices=st.just(("code", "prose")),
)


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda one: one.name)
@given(place=places, seed=st.integers(0, 2**31))
def test_every_draw_can_be_injected(incident: IncidentClass, place: FaultPlace, seed: int) -> None:
    """The document's rules and the injector's both accept it, and a repeat draws the same."""
    fault = drawn_fault(incident, place, seed)
    assert fault_of(wire_form(fault)).name == incident.name
    assert drawn_fault(incident, place, seed) == fault


def test_draws_differ_from_seed_to_seed() -> None:
    """Classes with parameters draw them: no fault is fixed."""
    place = FaultPlace(block_tokens=32, context_tokens=1024, slices=("code", "prose"))
    fixed = {"nan-sanitised", "crossed-answers", "cut-stream", "hang"}
    for incident in INCIDENTS:
        drawn = {drawn_fault(incident, place, seed).model_dump_json() for seed in range(10)}
        assert (len(drawn) == 1) == (incident.name in fixed), incident.name
    assert len({incident.name for incident in INCIDENTS}) == len(INCIDENTS) >= 20
    assert all(incident.reports for incident in INCIDENTS)
