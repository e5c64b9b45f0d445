"""The encoding of observations and actions: one list, its bounds, and what permuting kernels does."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rng import stream
from contracts.telemetry import Source
from controller.encoding.actions import LEAST_WEIGHT, action_from_table, table_from_action
from controller.encoding.encoder import Encoder
from controller.encoding.features import FEATURES, Scope, of_scope
from controller.encoding.running import family_excess, running_ratio
from controller.ports import Observation
from tests.support.fleets.builders import make_contract, make_layout
from tests.support.paths import DOCS

PAGE = DOCS / "environment.md"
KERNELS, SLICES = 4, 3
OWNER = np.array([0, 0, 1, 2, 2, 2, 3])
LAYOUT = make_layout(kernels=2, slices=2, per_kernel=2)
ENCODER = Encoder(kernels_max=6, slices=SLICES)


def observation(seed: int = 0, batch: int = 2) -> Observation:
    """An observation with a different number in every place."""
    rng = stream(seed, "observation")
    by_cell, by_replica = (batch, KERNELS, SLICES), (batch, len(OWNER))
    table = rng.random((batch, SLICES, KERNELS + 1))
    return Observation(
        now_s=rng.random(batch) * 100,
        table=table / table.sum(axis=2, keepdims=True),
        health=rng.random(by_cell) * 5,
        level=rng.integers(0, 3, by_cell),
        hard_violated=rng.random(by_cell) < 0.3,
        evidence_count=rng.random(by_cell) * 60,
        evidence_age_s=np.where(rng.random(by_cell) < 0.2, np.inf, rng.random(by_cell) * 100),
        certified=rng.random(by_cell) < 0.7,
        ready=rng.integers(0, 3, (batch, KERNELS)),
        capacity_rps=rng.random((batch, KERNELS)) * 30,
        sure_rps=np.zeros((batch, KERNELS)),
        load_ratio=rng.random((batch, KERNELS)) * 8,
        offered_rps=rng.random((batch, SLICES)) * 50,
        consecutive_failed=rng.integers(0, 20, by_replica),
        failed_ratio=rng.random(by_replica),
        in_rotation=rng.random(by_replica) < 0.8,
        quarantined=rng.random(by_replica) < 0.2,
        since_move_s=np.where(rng.random((batch, SLICES)) < 0.3, np.inf, rng.random((batch, SLICES)) * 100),
        role_known_good=np.arange(KERNELS) == 3,
        home=np.array([0, 1, 0]),
        replica_kernel=OWNER,
        family_excess=rng.random((*by_cell, 4)) * 3,
        running_ratio=rng.random(by_cell) * 6,
        evidence_ratio=rng.random(by_cell) * 3,
        drifted=rng.random(by_replica) < 0.4,
        running=rng.random((batch, KERNELS)) * 60,
        waiting=rng.random((batch, KERNELS)) * 9,
    )


#: Axis of the kernels in every field that has one.
KERNEL_AXIS = {
    "health": 1,
    "level": 1,
    "hard_violated": 1,
    "evidence_count": 1,
    "evidence_age_s": 1,
    "certified": 1,
    "ready": 1,
    "capacity_rps": 1,
    "load_ratio": 1,
    "role_known_good": 0,
    "family_excess": 1,
    "running_ratio": 1,
    "running": 1,
    "waiting": 1,
    "evidence_ratio": 1,
}


def permuted(observation: Observation, order: np.ndarray[Any, Any]) -> Observation:
    """The same fleet with its kernels in another order: kernel ``order[k]`` becomes k."""
    changes: dict[str, Any] = {
        name: np.take(getattr(observation, name), order, axis=axis) for name, axis in KERNEL_AXIS.items()
    }
    place = np.argsort(order)
    return replace(
        observation,
        **changes,
        table=observation.table[:, :, [*order, KERNELS]],
        home=place[observation.home],
        replica_kernel=place[observation.replica_kernel],
    )


def test_every_number_has_one_name_and_one_pair_of_bounds() -> None:
    """Names, bounds and the encoded observation are equally long, names are unique, padding is inside."""
    low, high = ENCODER.bounds()
    names, encoded = ENCODER.names(), ENCODER.encode(observation())
    assert len(names) == len(set(names)) == ENCODER.size == encoded.shape[1] == low.size == high.size
    assert (low <= 0.0).all()
    assert (high > 0.0).all()
    assert encoded.dtype == np.float32


@pytest.mark.parametrize("seed", range(5))
def test_encoded_observations_lie_within_bounds(seed: int) -> None:
    """Every observed value, infinite ages and overloads included, stays within the declared bounds."""
    low, high = ENCODER.bounds()
    encoded = ENCODER.encode(observation(seed))
    assert (encoded >= low).all()
    assert (encoded <= high).all()


def test_each_feature_is_where_its_name_says() -> None:
    """The number named kernelK.sliceS.health is the health of that kernel on that slice."""
    seen, names = observation(3), ENCODER.names()
    encoded = ENCODER.encode(seen)
    for k in range(KERNELS):
        for s in range(SLICES):
            shown = encoded[:, names.index(f"kernel{k}.slice{s}.health")]
            assert np.array_equal(shown, np.minimum(seen.health[:, k, s], 4.0).astype(np.float32))
            weight = encoded[:, names.index(f"kernel{k}.slice{s}.weight")]
            assert np.array_equal(weight, seen.table[:, s, k].astype(np.float32))
    shed = encoded[:, names.index("slice1.shed_weight")]
    assert np.array_equal(shed, seen.table[:, 1, -1].astype(np.float32))


@given(st.permutations(range(KERNELS)), st.integers(0, 5))
def test_permuting_kernels_permutes_rows_and_nothing_else(order: list[int], seed: int) -> None:
    """Rows follow their kernels; slices, fleet and padding stay where they are."""
    seen, turn = observation(seed), np.array(order)
    rows, tail = ENCODER.split(ENCODER.encode(seen))
    turned_rows, turned_tail = ENCODER.split(ENCODER.encode(permuted(seen, turn)))
    assert np.array_equal(turned_rows[:, :KERNELS], rows[:, turn])
    assert not turned_rows[:, KERNELS:].any()
    np.testing.assert_allclose(turned_tail, tail, rtol=1e-6)


@given(st.permutations(range(KERNELS)), st.integers(0, 5))
def test_permuting_kernels_permutes_the_table_of_an_action(order: list[int], seed: int) -> None:
    """An action whose columns follow their kernels asks for the same table, columns following too."""
    turn, home = np.array(order), np.array([0, 1, 0])
    action = stream(seed, "action").uniform(-1.5, 1.5, (2, SLICES, KERNELS + 1))
    there = table_from_action(action[:, :, [*turn, KERNELS]], np.argsort(turn)[home], KERNELS)
    here = table_from_action(action, home, KERNELS)
    np.testing.assert_allclose(there, here[:, :, [*turn, KERNELS]], rtol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_actions_give_routing_tables(seed: int, kernels: int) -> None:
    """Any numbers, NaN and infinite ones too, give rows that sum to 1 without tiny weights."""
    action = stream(seed, "any-action").standard_normal((2, SLICES, 7)) * 3.0
    action[0, 0, 0], action[1, 1, 2], action[1, 0, 6] = np.nan, np.inf, -np.inf
    table = table_from_action(action, np.zeros(SLICES, dtype=np.int64), kernels)
    np.testing.assert_allclose(table.sum(axis=2), 1.0, rtol=0.0, atol=1e-12)
    assert ((table == 0.0) | (table >= LEAST_WEIGHT)).all()


def test_the_action_zero_is_the_home_table() -> None:
    """The zero action leaves every slice wholly at home."""
    home = np.array([2, 0, 1])
    table = table_from_action(np.zeros((1, SLICES, 7)), home, 3)
    assert np.array_equal(table[0], np.eye(4)[home])


@given(st.integers(0, 10_000))
def test_a_table_survives_its_action(seed: int) -> None:
    """A table converted to its action and back is the same table, shedding included."""
    rng = stream(seed, "tables")
    table = np.where(
        rng.random((2, SLICES, KERNELS + 1)) < 0.4, 0.0, rng.uniform(0.2, 1.0, (2, SLICES, KERNELS + 1))
    )
    table[:, :, 0] = np.maximum(table[:, :, 0], 0.2)
    table /= table.sum(axis=2, keepdims=True)
    home = np.array([0, 1, 3])
    action = action_from_table(table, home, 6)
    np.testing.assert_allclose(table_from_action(action.astype(float), home, KERNELS), table, atol=1e-5)


def test_the_encoder_refuses_other_pools() -> None:
    """A pool with more kernels or other slices is refused with what was expected."""
    with pytest.raises(ValueError, match=r"at most 2 kernels and 3 slices, got 4 and 3"):
        Encoder(kernels_max=2, slices=3).encode(observation())


def test_family_excess_is_that_of_clauses_in_alarm() -> None:
    """By family the largest excess in alarm is shown; a clause in alarm always shows more than 0."""
    contract = make_contract(LAYOUT)
    rng = stream(1, "excess")
    shape = (3, 2, len(contract.slices), len(contract.clause_ids))
    alarm, excess = rng.random(shape) < 0.4, rng.standard_normal(shape)
    shown = family_excess(alarm, excess, contract)
    for place, letter in enumerate("NSRO"):
        mine = np.array([name == letter for name in contract.family])
        expected = np.where(alarm, np.maximum(excess, 0.01), 0.0)[..., mine].max(axis=3, initial=0.0)
        assert np.array_equal(shown[..., place], expected)


def test_running_ratio_is_that_of_the_worst_probe_clause() -> None:
    """Recomputed from the sums: mean or rate of the kernel's replicas over the limit, worst clause."""
    contract = make_contract(LAYOUT)
    replicas, slices = len(LAYOUT.replicas), len(contract.slices)
    rng = stream(2, "window")
    window = rng.integers(0, 5, (2, replicas, slices, len(contract.clause_ids), 4)).astype(float)
    included = rng.random((2, replicas)) < 0.7
    shown = running_ratio(window, included, LAYOUT, contract)
    expected = np.zeros_like(shown)
    for kernel in range(len(LAYOUT.kernels)):
        chosen = included & (LAYOUT.replica_kernel == kernel)
        sums = (window * chosen[:, :, None, None, None]).sum(axis=1)
        for c in np.flatnonzero(contract.source == Source.PROBE):
            limit = contract.rate_limit[c] if contract.is_rate[c] else contract.threshold[c]
            part = sums[:, :, c, 3 if contract.is_rate[c] else 1] / np.maximum(sums[:, :, c, 0], 1.0)
            ratio = np.where((sums[:, :, c, 0] > 0) & contract.applies[c], part / limit, 0.0)
            expected[:, kernel] = np.maximum(expected[:, kernel], ratio)
    np.testing.assert_allclose(shown, expected, rtol=1e-12)


def feature_table() -> str:
    """The features as a Markdown table, in the order of the encoding."""
    lines = ["| feature | one per | unit | low | high | source |", "|---|---|---|---|---|---|"]
    for scope in Scope:
        lines += [
            f"| `{f.name}` | {f.scope.value} | {f.unit} | {f.low:g} | {f.high:g} | {f.source} |"
            for f in of_scope(scope)
        ]
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_features_as_they_are() -> None:
    """The table in the documentation is generated from the list of features."""
    assert feature_table() in PAGE.read_text()


def test_the_features_read_what_observations_hold() -> None:
    """Without the optional fields of an observation the encoding works and shows zeros for them."""
    optional: dict[str, Any] = dict.fromkeys(("running_ratio", "drifted", "certified_loss"))
    assert set(optional) <= {item.name for item in fields(Observation)}
    bare = ENCODER.encode(replace(observation(), **optional))
    names = ENCODER.names()
    assert not bare[:, names.index("kernel0.slice0.running_ratio")].any()
    assert len({(feature.name, feature.scope) for feature in FEATURES}) == len(FEATURES)
