"""Hard clauses proved on a bounded instance: the shield's own functions run on symbolic numbers.

Two kernels, one slice. The proposal and the last table are unknown reals whose rows are distributions;
which cells are eligible, what the contract chooses, whether the row may move, and ample and short capacity
are enumerated. Every feasible path of both passes is run. Two slices, whose rows compete for capacity,
are enumerated on a grid of tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
import z3
from numba.core.registry import CPUDispatcher

from controller.options import ShieldLimits
from controller.shield import capacity as shield_capacity
from controller.shield import comfort as shield_comfort
from controller.shield import fleet as shield_fleet
from controller.shield import lesser_evil as shield_lesser_evil
from controller.shield import rows as shield_rows
from controller.shield.gate import ShieldView, shield
from tests.support.fleets.builders import make_contract, make_fleet, make_layout
from tests.support.fleets.shield_records import blank_outcome, blank_work, make_facts
from tests.support.symbolic import Explorer, Number

KERNELS, SLICES = 2, 1


@pytest.fixture
def plain() -> Iterator[None]:
    """The shield's compiled functions replaced by their Python sources."""
    with (
        mock.patch.multiple(shield_rows, **_python(shield_rows)),
        mock.patch.multiple(shield_capacity, **_python(shield_capacity)),
        mock.patch.multiple(shield_comfort, **_python(shield_comfort)),
        mock.patch.multiple(shield_lesser_evil, **_python(shield_lesser_evil)),
        mock.patch.multiple(shield_fleet, **_python(shield_fleet)),
    ):
        yield


def _python(module: Any) -> dict[str, Any]:
    return {name: value.py_func for name, value in vars(module).items() if isinstance(value, CPUDispatcher)}


def _rows(explorer: Explorer, names: np.ndarray) -> np.ndarray:
    return np.array([[Number(explorer, z3.Real(name)) for name in row] for row in names], dtype=object)


def _distributions(names: np.ndarray) -> list[z3.BoolRef]:
    reals = [[z3.Real(name) for name in row] for row in names]
    return [cell >= 0 for row in reals for cell in row] + [z3.Sum(row) == 1 for row in reals]


def _names(letter: str) -> np.ndarray:
    return np.array([[f"{letter}{s}{k}" for k in range(KERNELS + 1)] for s in range(SLICES)])


def _shielded(
    explorer: Explorer,
    eligible: np.ndarray,
    failover: int,
    limit_rps: tuple[float, ...],
    may: bool,
    loss: tuple[float, ...] = (1.0, 1.0),
    comfort: float = 1.0,
) -> Any:
    """The table [S, K + 1] that both passes make of a symbolic proposal."""
    allowed = eligible.copy()
    if failover < KERNELS:
        allowed[~eligible.any(axis=1), failover] = True
    facts = make_facts(
        proposed=_rows(explorer, _names("x")),
        last=_rows(explorer, _names("w")),
        allowed=allowed,
        failover=np.array([failover if not row.any() else -1 for row in eligible]),
        may_move=np.full(SLICES, may),
        offered_rps=np.ones(SLICES),
        limit_rps=np.array(limit_rps),
        capacity_rps=(1.0 + comfort) / 2.0 * np.array(limit_rps),
        comfort_rps=comfort * np.array(limit_rps),
        loss=np.tile(loss, (SLICES, 1)),
    )
    outcome, work = blank_outcome(facts, dtype=object), blank_work(facts, dtype=object)
    stuck = shield_fleet.plan_fleet(facts, outcome, work)
    shield_fleet.settle_fleet(facts, outcome, work)
    assert not stuck
    return outcome.table


def _is_zero(explorer: Explorer, cell: Any) -> bool:
    return cell == 0.0 if not isinstance(cell, Number) else explorer.holds(cell.term == 0)


@pytest.mark.parametrize(
    ("limit_rps", "comfort", "may"),
    [
        ((10.0, 10.0), 1.0, True),
        ((10.0, 10.0), 1.0, False),
        ((0.5, 0.25), 1.0, True),
        ((0.5, 0.25), 1.0, False),
        ((10.0, 0.8), 0.5, True),
    ],
)
def test_no_path_puts_weight_on_a_forbidden_cell(
    plain: None, limit_rps: tuple[float, ...], comfort: float, may: bool
) -> None:
    """For all proposals, last tables and sets of eligible cells, forbidden cells are exactly 0.

    The exception is the kernel that the contract chose where no cell of the row is eligible. Capacity is
    ample or short, loads are comfortable, above that, and at the limit.
    """
    paths = 0
    for cells, failover in product([(False, True), (True, False), (False, False)], (KERNELS - 1, KERNELS)):
        eligible = np.array(cells).reshape(SLICES, KERNELS)
        explorer = Explorer(_distributions(_names("x")) + _distributions(_names("w")))
        make = partial(_shielded, eligible=eligible, failover=failover, limit_rps=limit_rps, may=may)
        make = partial(make, comfort=comfort)
        for table in explorer.run(make):
            for k in range(KERNELS):
                chosen = not eligible.any() and k == failover
                assert eligible[0, k] or chosen or _is_zero(explorer, table[0, k])
        paths += explorer.paths
    assert paths > 200


@pytest.mark.parametrize("may", [True, False])
def test_a_soft_cell_has_weight_only_where_capacity_is_short(plain: None, may: bool) -> None:
    """For all proposals and last tables the soft cell is 0 where the compliant kernel carries the row.

    Where it does not, some path serves there, and none does where an answer loses all of its worth.
    """
    served = {}
    for name, loss, room_rps in (("ample", 0.5, 10.0), ("short", 0.5, 0.25), ("worthless", 1.0, 0.25)):
        explorer = Explorer(_distributions(_names("x")) + _distributions(_names("w")))
        make = partial(
            _shielded,
            eligible=np.array([[False, True]]),
            failover=KERNELS,
            limit_rps=(10.0, room_rps),
            may=may,
            loss=(loss, 1.0),
        )
        served[name] = [not _is_zero(explorer, table[0, 0]) for table in explorer.run(make)]
    assert not any(served["ample"])
    assert any(served["short"])
    assert not any(served["worthless"])


def test_the_explorer_finds_a_path_with_forbidden_weight(plain: None) -> None:
    """The proof can fail: with an eligible cell marked as forbidden, some path puts weight on it."""
    explorer = Explorer(_distributions(_names("x")) + _distributions(_names("w")))
    make = partial(
        _shielded, eligible=np.array([[True, False]]), failover=KERNELS, limit_rps=(10.0, 10.0), may=True
    )
    assert not all(_is_zero(explorer, table[0, 0]) for table in explorer.run(make))


def _grid(parts: int, slices: int) -> np.ndarray:
    """All tables [N, slices, 3] whose weights are multiples of 1 / parts."""
    rows = [(a, b, parts - a - b) for a in range(parts + 1) for b in range(parts + 1 - a)]
    return np.array(list(product(rows, repeat=slices)), dtype=np.float64) / parts


@pytest.mark.parametrize("capacity_rps", [8.0, 0.4])
def test_forbidden_cells_are_zero_on_every_table_of_a_grid(capacity_rps: float) -> None:
    """225 proposals, 36 last tables and 16 sets of violations, on two slices that share two kernels."""
    layout = make_layout(kernels=2, slices=2, per_kernel=1)
    contract = make_contract(layout, priority=np.array([1, 2]), shed_when_uncertified=True)
    fleet = make_fleet(layout, contract=contract, capacity_rps=np.array([1.0, 0.7]) * capacity_rps)
    proposed, last = _grid(4, 2), _grid(2, 2)
    hard = np.array(list(product((False, True), repeat=4))).reshape(16, 2, 2)
    which = np.array(list(product(range(len(proposed)), range(len(last)), range(len(hard)))))
    batch = len(which)
    view = ShieldView(
        last=last[which[:, 1]],
        hard_violated=hard[which[:, 2]],
        certified=np.ones((batch, 2, 2), dtype=np.bool_),
        ready=np.ones((batch, 2), dtype=np.int64),
        offered_rps=np.tile([0.4, 0.5], (batch, 1)),
        may_move=np.tile([True, False], (batch, 1)),
    )
    safe = shield(proposed[which[:, 0]], view, fleet, ShieldLimits()).table
    assert (safe[..., :-1][view.hard_violated.transpose(0, 2, 1)] == 0.0).all()
    np.testing.assert_allclose(safe.sum(axis=2), 1.0, atol=1e-9)
