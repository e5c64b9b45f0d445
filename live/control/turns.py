"""Deciding without ports, for one or many fleets, and the state kept afterwards. Replays use it as well.

Fleets with equal set-ups decide in one batched tick, with the same results as alone. Set-ups are equal if
they differ at most in the contract's name and hash. Equal must be: names of kernels, slices and replicas,
thresholds, capacities, homes, stages, policy, detector, options and meta-contract. A policy with members
other than plain values, such as a network, equals no other. Fleets that cannot be batched are left to the
caller, which decides them one by one.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import Any

import numpy as np

from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.loop import tick
from controller.options import ControllerSetup
from controller.plan import without_plan
from controller.ports import Clock
from controller.state import ControllerState, altered
from controller.supervise.meta import note_decision
from live.control.clocks import CpuClock
from live.control.stacks import NotOneBatchError, Split, Stacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A fleet's decision. spent_ms: its share of the CPU time; fleets: number of fleets in the batch."""

    after: ControllerState
    decision: Decision
    spent_ms: float
    fleets: int = 1


def decide(
    before: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup
) -> tuple[ControllerState, Decision]:
    """The next state, as if the plan were in force, and the decision. Pure."""
    return tick(before, telemetry, setup)


def decide_alone(
    before: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, cpu: Clock
) -> Decided:
    """``decide``, with the time that it took by ``cpu``."""
    began_ms = cpu.now_ms()
    after, decision = decide(before, telemetry, setup)
    return Decided(after=after, decision=decision, spent_ms=cpu.now_ms() - began_ms)


def remembered_state(
    before: ControllerState,
    after: ControllerState,
    setup: ControllerSetup,
    *,
    in_force: bool,
    spent_ms: float,
) -> ControllerState:
    """``after`` as it is kept: without a plan that is not in force, and with the time that deciding took.

    in_force: an observer passes True, and continues as if its plans were in force.
    """
    kept = after if in_force else without_plan(before, after)
    if setup.meta is None:
        return kept
    return altered(kept, supervisor=note_decision(kept.supervisor, spent_ms))


_LOG = logging.getLogger(__name__)
#: Most fleets of one batch: their data stays in a processor's cache.
MOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedFleet:
    """One fleet to decide. like: its previous decision; None: it has none, so it is decided alone."""

    setup: ControllerSetup
    key: str | None  # ``setup_key``
    before: ControllerState
    telemetry: FleetTelemetry
    like: Decision | None


def setup_key(setup: ControllerSetup) -> str | None:
    """A hash that is equal for set-ups that decide alike; None if that cannot be determined."""
    contract = replace(setup.fleet.contract, name="", sha256="")
    nameless = replace(setup.fleet, contract=contract)
    try:
        return sha256(repr(_plain(replace(setup, fleet=nameless))).encode()).hexdigest()
    except NotOneBatchError:
        return None


class BatchedTurns:
    """Decides for many fleets, tick after tick; batches with unchanged members are not stacked again."""

    def __init__(self, cpu: Clock | None = None) -> None:
        self._cpu = cpu or CpuClock()
        self._given: dict[int, Split] = {}

    def forget(self) -> None:
        """Drop all references to fleets."""
        self._given = {}

    def decide(self, asked: Mapping[str, UndecidedFleet]) -> dict[str, Decided]:
        """Decisions, by name, for the fleets that could be batched with another one. Raises nothing.

        The returned records share memory within a batch: use ``compact_copy`` to keep one beyond the tick.
        """
        groups: dict[Hashable, list[str]] = defaultdict(list)
        for name, one in asked.items():
            if one.key is not None and one.like is not None:
                groups[one.key, one.telemetry.probes.valid.shape].append(name)
        found: dict[str, Decided] = {}
        before, self._given = self._given, {}
        for names in groups.values():
            for begin in range(0, len(names), MOST):
                chunk = names[begin : begin + MOST]
                if len(chunk) > 1:
                    found |= self._decided(chunk, [asked[name] for name in chunk], Stacks(before))
        return found

    def _decided(
        self, names: Sequence[str], asked: Sequence[UndecidedFleet], stacks: Stacks
    ) -> dict[str, Decided]:
        first, began_ms = asked[0], self._cpu.now_ms()
        assert first.like is not None  # only these are grouped
        try:
            before = stacks.stacked([one.before for one in asked])
            telemetry = stacks.stacked([one.telemetry for one in asked])
            batch_after, batch_decision = decide(before, telemetry, first.setup)
            after = stacks.parted(batch_after, first.before, len(asked))
            decisions = stacks.parted(batch_decision, first.like, len(asked))
        except Exception as error:  # one fleet may be the cause: decided alone, it affects no other
            _LOG.warning("%d policies decide one by one: %s", len(names), error)
            return {}
        self._given |= stacks.given(batch_after)
        spent_ms = (self._cpu.now_ms() - began_ms) / len(asked)
        return {
            name: Decided(after=state, decision=decision, spent_ms=spent_ms, fleets=len(asked))
            for name, state, decision in zip(names, after, decisions, strict=True)
        }


def _plain(value: Any) -> Hashable:
    """``value`` as nested tuples for comparison; ``NotOneBatchError`` for values that are not plain."""
    if value is None or isinstance(value, (bool, int, float, str, Enum)):
        return repr(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (tuple, list)):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dict):
        return tuple(sorted((repr(key), _plain(one)) for key, one in value.items()))
    if is_dataclass(value) and not isinstance(value, type):
        inner = tuple(_plain(getattr(value, item.name)) for item in fields(value))
        return type(value).__module__, type(value).__qualname__, inner
    raise NotOneBatchError(f"a {type(value).__name__} is no plain value")
