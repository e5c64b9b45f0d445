"""Laws of the shield, over every table and every state of knowledge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.shield import normalise, shield
from tests.builders import make_contract, make_layout

LAYOUT = make_layout(kernels=4, slices=3, per_kernel=1)
CONTRACT = make_contract(LAYOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    table: np.ndarray
    hard: np.ndarray
    certified: np.ndarray
    health: np.ndarray
    ready: np.ndarray
    shed: bool

    def shielded(self, table: np.ndarray | None = None) -> np.ndarray:
        contract = replace(CONTRACT, shed_when_uncertified=self.shed)
        given_table = self.table if table is None else table
        return shield(given_table, self.hard, self.certified, self.health, self.ready, 3, contract)

    def usable(self) -> np.ndarray:
        """bool [B, S, K]: no hard violation, a replica in rotation."""
        return (~self.hard & (self.ready > 0)[:, :, None]).transpose(0, 2, 1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Random tables under random knowledge."""
    rng = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**32))))
    table = rng.dirichlet(np.full(5, 0.4), (2, 3))
    table[rng.random(table.shape) < 0.4] = 0.0
    table[..., draw(st.integers(0, 4))] += 1e-3
    hard = rng.random((2, 4, 3)) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    return Case(
        table=table / table.sum(axis=2, keepdims=True),
        hard=hard,
        certified=rng.random((2, 4, 3)) < 0.6,
        health=rng.uniform(0.0, 3.0, (2, 4, 3)),
        ready=rng.integers(0, 3, (2, 4)),
        shed=draw(st.booleans()),
    )


@given(cases())
def test_rows_sum_to_one(case: Case) -> None:
    """Whatever is masked, every row is a distribution over kernels and shed."""
    safe = case.shielded()
    assert (safe >= 0.0).all()
    np.testing.assert_allclose(safe.sum(axis=2), 1.0, atol=1e-9)


@given(cases())
def test_no_weight_on_hard_violations_unless_the_contract_says_serve(case: Case) -> None:
    """A masked kernel gets weight only as the known-good one where no certified kernel lives."""
    safe, usable = case.shielded()[..., :4], case.usable()
    lives = (usable & case.certified.transpose(0, 2, 1)).any(axis=2)
    masked = (safe > 0.0) & ~usable
    served_anyway = masked & (np.arange(4) == 3) & ~lives[:, :, None] & (not case.shed)
    np.testing.assert_array_equal(masked, served_anyway)
    assert (safe[np.broadcast_to((case.ready == 0)[:, None, :], safe.shape)] == 0.0).all()


@given(cases())
def test_never_an_empty_pool_while_a_certified_kernel_lives(case: Case) -> None:
    """A row is shed whole only where no certified kernel without hard violation is in rotation."""
    safe = case.shielded()
    lives = (case.usable() & case.certified.transpose(0, 2, 1)).any(axis=2)
    assert (safe[..., :4].sum(axis=2)[lives] > 0.0).all()


@given(cases())
def test_shielding_twice_is_shielding_once(case: Case) -> None:
    """The result is allowed, so it comes back bit for bit."""
    safe = case.shielded()
    np.testing.assert_array_equal(case.shielded(safe), safe)


@given(cases())
def test_an_allowed_table_is_untouched(case: Case) -> None:
    """Where no weight lies on a masked kernel and the row is not empty, nothing changes."""
    weights = case.table[..., :4]
    fine = (~((weights > 0.0) & ~case.usable())).all(axis=2) & (weights.sum(axis=2) > 0.0)
    np.testing.assert_array_equal(case.shielded()[fine], case.table[fine])


def test_unusable_rows_give_way_to_the_last_table() -> None:
    """NaN, negative or missing weight is no proposal; a wrong sum is scaled."""
    last = np.tile([1.0, 0.0, 0.0], (1, 4, 1))
    table = np.array([[[np.nan, 1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 2.0]]])
    np.testing.assert_array_equal(
        normalise(table, last), [[[1, 0, 0], [1, 0, 0], [1, 0, 0], [0.25, 0.25, 0.5]]]
    )
