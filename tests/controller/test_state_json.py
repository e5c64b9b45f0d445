"""A controller's state is written as JSON and read back bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.initial import initial_state
from controller.state_json import state_from_json, state_to_json
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout

FLEET = make_fleet(make_layout(kernels=3, slices=2, per_kernel=2))
REPEATED = st.lists(
    st.tuples(st.floats() | st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf]), st.integers(0, 5)),
    max_size=8,
)


@given(REPEATED)
def test_a_state_is_written_as_json_writes_it(runs: list[tuple[float, int]]) -> None:
    """For any repetition of numbers the text is that of a plain writer, and numbers return bit for bit."""
    setup = make_configuration("hysteresis", FLEET)
    state = initial_state(setup, 1)
    probed = np.zeros(state.probed_at_s.size)
    told = np.array([value for value, count in runs for _ in range(count)])[: probed.size]
    probed[: len(told)] = told
    odd = replace(state, probed_at_s=probed.reshape(state.probed_at_s.shape))
    text = state_to_json(odd, setup)
    assert json.dumps(json.loads(text), sort_keys=True) == text
    found = state_from_json(text, setup).probed_at_s
    assert np.array_equal(found, odd.probed_at_s, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(odd.probed_at_s) & ~np.isnan(odd.probed_at_s))
