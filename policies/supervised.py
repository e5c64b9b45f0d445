"""A controller set-up under a meta-contract: the configuration as it is, watched, with the baseline beside
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from contracts.compiled.meta import CompiledMeta, compile_meta
from contracts.documents import MetaContract
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from controller.fleet import FleetSetup
from controller.options import ControllerSetup, ShieldLimits
from controller.ports import Observation, Policy, PolicyState, Proposal
from policies.certify.admission import SHIPPED_META
from policies.registry import make_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGoodPolicy:
    """Every slice on the known-good kernel, always; the shield sees to capacity."""

    policy_id: str = "fixed_known_good"

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Nothing to remember."""
        return {}

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Weight 1 in the known-good column."""
        table = np.zeros(seen.table.shape)
        table[:, :, int(np.argmax(seen.role_known_good))] = 1.0
        return Proposal(table=table, ejected=np.zeros(seen.in_rotation.shape, dtype=np.bool_)), state


def shipped_meta() -> CompiledMeta:
    """The meta-contract that ships with the library."""
    return compile_meta(load_as(MetaContract, resolve_uri(SHIPPED_META, "selvage")))


def baseline_of(meta: CompiledMeta, fleet: FleetSetup) -> Policy:
    """The policy that ``meta`` hands over to, made for ``fleet``."""
    if meta.baseline == KnownGoodPolicy().policy_id:
        return KnownGoodPolicy()
    return make_policy(meta.baseline, fleet)


def under(meta: CompiledMeta, setup: ControllerSetup, *, watch_only: bool = False) -> ControllerSetup:
    """``setup`` with its policy kept by ``meta``; ``watch_only`` counts and demotes nobody.

    Of the shield's limits and the meta-contract's the stricter hold. The baseline stands on the evidence
    that the configuration's own detector gives: who proposes is exchanged, not who looks.
    """
    options = replace(setup.options, limits=stricter(setup.options.limits, meta))
    baseline = baseline_of(meta, setup.fleet)
    return replace(setup, options=options, meta=meta, baseline=baseline, watch_only=watch_only)


def stricter(limits: ShieldLimits, meta: CompiledMeta) -> ShieldLimits:
    """``limits`` where they are stricter than what ``meta`` asks for online, else what it asks for."""
    most = min(limits.canary_most_ratio, meta.most("new_kernel_traffic_ratio"))
    return replace(
        limits,
        max_move_ratio=min(limits.max_move_ratio, meta.most("weight_move_per_tick")),
        min_dwell_s=max(limits.min_dwell_s, meta.most("dwell_s")),
        canary_most_ratio=most,
        canary_least_ratio=min(limits.canary_least_ratio, most),
    )
