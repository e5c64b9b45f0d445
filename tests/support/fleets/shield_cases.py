"""Random fleets for the laws of the shield: tables, knowledge, loads and limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from controller.fleet import FleetSetup, Stage
from controller.options import ShieldLimits
from controller.shield.gate import Shielded, ShieldView, shield
from controller.shield.rows import MINIMUM_SHARE
from tests.support.fleets.builders import make_contract, make_fleet, make_layout

KERNELS, SLICES, BATCH = 4, 3, 3
KNOWN_GOOD = KERNELS - 1
LAYOUT = make_layout(kernels=KERNELS, slices=SLICES, per_kernel=1)
CLOSE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A proposal, the knowledge, and the limits."""

    table: np.ndarray
    view: ShieldView
    fleet: FleetSetup
    limits: ShieldLimits

    def shielded(self, table: np.ndarray | None = None) -> Shielded:
        """The shield's result for ``table``, by default the case's own."""
        return shield(self.table if table is None else table, self.view, self.fleet, self.limits)

    @property
    def alive(self) -> np.ndarray:
        """bool [B, S, K]: enough replicas, and not in shadow."""
        return np.repeat((self.view.ready > 0)[:, None, :] & (self.stage > 0), SLICES, axis=1)

    @property
    def stage(self) -> np.ndarray:
        """int [K]."""
        assert self.fleet.stage is not None
        return self.fleet.stage

    @property
    def eligible(self) -> np.ndarray:
        """bool [B, S, K]: alive, certified, no hard violation."""
        known = self.view.certified & ~self.view.hard_violated
        return self.alive & known.transpose(0, 2, 1)

    @property
    def no_target(self) -> np.ndarray:
        """bool [B, S]: no eligible kernel."""
        return np.asarray(~self.eligible.any(axis=2))

    @property
    def limit_rps(self) -> np.ndarray:
        """float [B, K]: planned limit of a kernel."""
        return self.view.ready * self.fleet.capacity_rps * self.limits.max_load_ratio

    @property
    def capacity_rps(self) -> np.ndarray:
        """float [B, K]: capacity of a kernel."""
        return self.view.ready * self.fleet.capacity_rps

    @property
    def comfort_rps(self) -> np.ndarray:
        """float [B, K]: limit of a kernel while others have headroom."""
        return np.clip(
            self.loads(self.view.last),
            self.capacity_rps * self.limits.comfortable_load_ratio,
            self.capacity_rps * self.limits.kept_load_ratio,
        )

    def loads(self, table: np.ndarray) -> np.ndarray:
        """float [B, K]."""
        return np.asarray(np.einsum("bsk,bs->bk", table[..., :-1], self.view.offered_rps))

    def minimum_share_rps(self) -> np.ndarray:
        """float [B]: how far a load may go past its limit so that no pool is empty."""
        return np.asarray(MINIMUM_SHARE * self.view.offered_rps.sum(axis=1))


def random_table(rng: np.random.Generator, batch: int = BATCH, kernels: int = KERNELS) -> np.ndarray:
    """Rows that sum to 1, many weights 0, now and then all shed."""
    table = rng.dirichlet(np.full(kernels + 1, 0.5), (batch, SLICES))
    table[..., -1] *= rng.random((batch, SLICES)) < 0.3
    table[rng.random(table.shape) < 0.4] = 0.0
    empty = table.sum(axis=2) <= 0.0
    table[empty] = np.eye(kernels + 1)[rng.integers(0, kernels + 1, int(empty.sum()))]
    return np.asarray(table / table.sum(axis=2, keepdims=True))


@st.composite
def cases(draw: st.DrawFn, *, canaries: bool = True, tight: bool = True, slow: bool = True) -> Case:
    """Random tables under random knowledge; without ``slow`` slew and dwell allow everything."""
    rng = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**32))))
    stage = np.full(KERNELS, int(Stage.ACTIVE))
    if canaries:
        stage[: KERNELS - 1] = rng.choice(3, KERNELS - 1, p=[0.1, 0.2, 0.7])
    load = draw(st.sampled_from([0.1, 0.7, 1.1, 2.0] if tight else [1e-3]))
    contract = make_contract(
        LAYOUT, priority=rng.integers(0, 3, SLICES), shed_when_uncertified=draw(st.booleans())
    )
    fleet = make_fleet(LAYOUT, contract=contract, stage=stage, capacity_rps=rng.uniform(0.5, 20.0, KERNELS))
    ready = rng.integers(0, 3, (BATCH, KERNELS))
    offered = rng.dirichlet(np.ones(SLICES), BATCH) * load * 40.0
    offered[rng.random(offered.shape) < 0.1] = 0.0
    last = random_table(rng)
    return Case(
        table=np.where(rng.random((BATCH, 1, 1)) < 0.2, last, random_table(rng)),
        view=ShieldView(
            last=last,
            hard_violated=rng.random((BATCH, KERNELS, SLICES)) < draw(st.sampled_from([0.0, 0.2, 0.7])),
            certified=rng.random((BATCH, KERNELS, SLICES)) < draw(st.sampled_from([1.0, 0.7])),
            ready=ready,
            offered_rps=offered,
            may_move=rng.random((BATCH, SLICES)) < 0.7 if slow else np.ones((BATCH, SLICES), dtype=np.bool_),
        ),
        fleet=fleet,
        limits=ShieldLimits(max_move_ratio=0.25 if slow else 1.0),
    )


def with_hard(case: Case, hard: np.ndarray) -> Case:
    """The same with other hard violations."""
    return replace(case, view=replace(case.view, hard_violated=hard))
