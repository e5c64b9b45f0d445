"""The assumptions behind a decision, in words: values that were declared or certified instead of measured."""

from __future__ import annotations

import numpy as np

from controller.decision import Decision
from controller.options import ControllerSetup
from controller.perceive.capacity_pass import OUTPUTS, PROMPTS, SCRAPES, UNBOUNDED_RPS
from controller.perceive.usual_speed import usual_of_kernels, usual_ratios
from controller.shield.load import proven_ratio
from controller.state import ControllerState

#: Least proven load beyond the usual limit, over capacity, that is reported.
LEAST_MORE = 0.05


def assumptions(
    after: ControllerState, decision: Decision, setup: ControllerSetup, fleet: int
) -> tuple[str, ...]:
    """One sentence for each assumption on ``fleet``: capacities that were not measured, missing counters,
    speeds other than the certified ones, loads above the estimate, slices without a failover target.
    """
    capacity, load = _of_capacity(after, setup, fleet), _of_load(after, setup, fleet)
    clocks = _of_clocks(after, setup, fleet) if after.usual else []
    return (*capacity, *clocks, *load, *_of_targets(decision, setup, fleet))


def _of_capacity(after: ControllerState, setup: ControllerSetup, fleet: int) -> list[str]:
    kernels, owner = setup.layout.kernels, setup.layout.replica_kernel
    if setup.fleet.engine is None:
        return [f"capacity of {name}: as declared, no engine is certified" for name in kernels]
    if bool((after.replica_rps[fleet] >= UNBOUNDED_RPS).any()):
        return ["capacity: not measured yet, so no traffic is moved or shed for lack of it"]
    sentences = []
    if not bool((after.request_tokens[fleet, [PROMPTS, OUTPUTS]] > 0.0).all()):
        sentences.append("tokens of the mean request: as declared, no server counts them")
    counted = after.engine_speed[fleet, :, SCRAPES] > 0.0
    uncounted = [name for k, name in enumerate(kernels) if not bool(counted[owner == k].any())]
    if uncounted:
        sentences.append(f"speed of {', '.join(uncounted)}: as certified, no server counts its steps")
    return sentences


def _of_clocks(after: ControllerState, setup: ControllerSetup, fleet: int) -> list[str]:
    """Usual step times with which clocks are compared, and the replicas for which they are unknown."""
    factors = np.exp(usual_of_kernels(after, setup.layout.replica_kernel)[fleet])
    names = setup.layout.kernels
    usual = [f"{name} {factor:.2g}" for name, factor in zip(names, factors, strict=True) if factor != 1.0]
    known = np.isfinite(usual_ratios(after)[fleet])
    unknown = [name for name, is_known in zip(setup.layout.replicas, known, strict=True) if not is_known]
    sentences = [f"usual step times over the certified ones: {', '.join(usual)}"] if usual else []
    if unknown:
        sentences.append(f"own clock of {', '.join(unknown)}: not judged, its usual step time is unknown")
    return sentences


def _of_load(after: ControllerState, setup: ControllerSetup, fleet: int) -> list[str]:
    """Kernels with a queue, and kernels with more load than their estimated capacity (``shield.load``)."""
    sentences, known_ratio = [], setup.options.limits.max_load_ratio
    proven = proven_ratio(after.load, after.replica_rps)[fleet]
    for k, name in enumerate(setup.layout.kernels):
        if after.load["queued"][fleet, k]:
            sentences.append(
                f"{name}: its queue makes requests late, so less is admitted until it is worked off"
            )
        elif proven[k] >= known_ratio + LEAST_MORE:
            sentences.append(
                f"{name}: may carry {proven[k]:.1f} times its estimated capacity, it has no queue"
            )
    return sentences


def _of_targets(decision: Decision, setup: ControllerSetup, fleet: int) -> list[str]:
    """Slices with no certified kernel, or with only one."""
    kernels, slices = setup.layout.kernels, setup.layout.slices
    if len(kernels) == 1:
        return [f"{kernels[0]} is alone: there is nothing to move to"]
    judgement, ready = decision.judgement, decision.observation.ready
    certified = judgement.certified & ~judgement.hard_violated & (ready > 0)[:, :, None]
    count = certified[fleet].sum(axis=0)
    last = "shed" if setup.contract.shed_when_uncertified else f"served by {kernels[setup.layout.known_good]}"
    none = [
        f"{slices[s]}: no certified kernel, {last} as the contract chooses"
        for s in np.flatnonzero(count == 0)
    ]
    one = [
        f"{slices[s]}: no kernel to spare beside {kernels[int(certified[fleet, :, s].argmax())]}"
        for s in np.flatnonzero(count == 1)
    ]
    return none + one
