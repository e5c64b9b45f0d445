"""Break-glass starts and ends although other objects of the policy are bad at that moment."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from k8s.operator.namespace import NamespaceOperator
from k8s.operator.objects import Manifest, Resources
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import RecordedWorld, recorded_world

SHAPE = PoolSize(kernels=2, replicas=2, slices=1)
NAME, LATER = "pool-0", "2099-01-01T00:00:00Z"
Change = Callable[[Manifest], object]


class Glass:
    """One running policy whose objects the test edits."""

    def __init__(self) -> None:
        self.world: RecordedWorld = recorded_world(1, SHAPE, 30)
        self.operator: NamespaceOperator = self.world.operator()
        self.turn()

    def turn(self) -> None:
        """One tick with the current objects."""
        self.operator.nudge()
        self.world.advance()
        self.operator.turn()

    def edit(self, policy: Change = bool, pool: Change = bool) -> None:
        """Edit policy and pool, then run a tick."""
        seen: Resources = self.world.cluster.resources()
        policies, pools = deepcopy(dict(seen.policies)), deepcopy(dict(seen.pools))
        policy(policies[NAME])
        if NAME in pools and pool(pools[NAME]) is None:
            del pools[NAME]
        self.world.cluster._resources = replace(seen, policies=policies, pools=pools)
        self.turn()

    def freeze(self, table: list[Manifest] | None = None) -> None:
        """Freeze the policy."""
        found = {"until": LATER, "reason": "the night shift"} | ({"table": table} if table else {})
        self.edit(policy=lambda one: one["spec"].update(freeze=found))

    def thaw(self) -> None:
        """End the freeze."""
        self.edit(policy=lambda one: one["spec"].pop("freeze"))

    def gone(self) -> None:
        """Delete the pool; the last good documents stay in force."""
        self.edit(pool=lambda _: None)
        assert NAME in self.operator.loops

    def frozen(self) -> bool:
        """Whether weights are frozen."""
        return self.operator.loops[NAME].standing.frozen


def test_a_freeze_holds_although_the_objects_do_not_fit() -> None:
    """During a bad rollout a freeze takes effect, and so does its end."""
    glass = Glass()
    glass.gone()
    assert not glass.frozen()
    glass.freeze()
    assert glass.frozen()
    glass.thaw()
    assert not glass.frozen()


def test_an_ended_freeze_does_not_return_with_the_last_good_documents() -> None:
    """The last good documents contain the freeze, but the current policy decides."""
    glass = Glass()
    glass.freeze()
    glass.edit(pool=lambda one: one["spec"]["kernels"][0].update(capacity_rps=40.0) or True)
    assert glass.frozen()
    glass.thaw()
    assert not glass.frozen()
    glass.gone()
    assert not glass.frozen()


@pytest.mark.parametrize("kernel", ["k0", "k1"])
def test_a_pinned_table_that_fits_the_pool_in_force_is_used(kernel: str) -> None:
    """A table whose kernels exist is pinned although the pool itself was deleted."""
    glass = Glass()
    glass.gone()
    loop = glass.operator.loops[NAME]
    (name,) = loop.setup.layout.slices
    glass.freeze([{"slice": name, "weights": [{"kernel": kernel, "weight": 1.0}]}])
    assert glass.frozen()
    now, kernels = loop.controller.state.table[0], loop.setup.layout.kernels
    assert now[0].tolist() == [float(one == kernel) for one in (*kernels, "")]


def test_a_pinned_table_that_does_not_fit_changes_nothing() -> None:
    """A pinned table with an unknown kernel is bad input: an earlier freeze, or none, stays."""
    glass = Glass()
    glass.gone()
    (name,) = glass.operator.loops[NAME].setup.layout.slices
    unknown = [{"slice": name, "weights": [{"kernel": "unknown", "weight": 1.0}]}]
    glass.freeze(unknown)
    assert not glass.frozen()
    glass.freeze()
    assert glass.frozen()
    glass.freeze(unknown)
    assert glass.frozen()
