"""Input of a learned policy and meaning of its output: one list from which everything else is built.

``FEATURES`` names every number with its unit, bounds and source. The encoder, the bounds of the
environment's observation space and the table in ``docs/environment.md`` are built from it.

Layout. One row per kernel, padded with zeros to ``kernels_max`` rows: first the features of the kernel
itself, then those of (kernel, slice), slice by slice; behind the rows those of each slice and of the
fleet. Renaming or reordering kernels reorders the rows and changes nothing else, so one network that is
applied to every row serves any pool up to ``kernels_max``. Reading uses the ``Observation`` alone: what
a policy may know.

An action is one number in [-1, 1] per (slice, kernel) and one per slice for shedding;
``controller.encoding.actions`` defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from controller.encoding.scales import (
    LARGEST_RPS,
    LEAST_LOSS,
    LONGEST_AGE_S,
    MOST_FAILURES,
    MOST_LOSS,
    MOST_RATIO,
    Values,
    log_rate,
    log_time,
    per_kernel,
    worst_of_replicas,
)
from controller.ports import Observation

#: Changes whenever a feature, its scale or the meaning of an action changes; artefacts carry it.
ENCODING_VERSION = 4

# Plain integers: comparing with an enumeration takes longer.
_GUARD, _FALLBACK = int(Level.GUARD), int(Level.FALLBACK)


class Scope(Enum):
    """Unit of which a feature has one number each."""

    KERNEL = "kernel"
    KERNEL_SLICE = "kernel, slice"
    SLICE = "slice"
    FLEET = "fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One named number.

    ``read`` gives float [B, K], [B, K, S], [B, S] or [B] by ``scope``, without B where all fleets share it.
    Values beyond ``low`` and ``high`` are clipped; padding is 0, which lies within.
    """

    name: str
    scope: Scope
    unit: str
    low: float
    high: float
    source: str  # where the number comes from
    read: Callable[[Observation], NDArray[np.generic]]


def _at_home(observation: Observation) -> NDArray[np.bool_]:
    return np.asarray(np.arange(observation.ready.shape[1])[:, None] == observation.home)


def _weight(observation: Observation) -> Values:
    return observation.table[:, :, :-1].transpose(0, 2, 1)


def _family(index: int) -> Callable[[Observation], Values]:
    def read(observation: Observation) -> Values:
        return observation.family_excess[..., index]

    return read


def _running(observation: Observation) -> Values:
    return (
        np.zeros(observation.health.shape) if observation.running_ratio is None else observation.running_ratio
    )


def _certified_loss(observation: Observation) -> Values:
    if observation.certified_loss is None:
        return np.zeros(observation.health.shape)
    return np.asarray(np.log1p(observation.certified_loss / LEAST_LOSS) / np.log1p(MOST_LOSS / LEAST_LOSS))


def _drifted(observation: Observation) -> Values:
    return (
        np.zeros(observation.ready.shape)
        if observation.drifted is None
        else per_kernel(observation, observation.drifted)
    )


def _kernel(
    name: str, unit: str, high: float, source: str, read: Callable[[Observation], NDArray[np.generic]]
) -> Feature:
    return Feature(name=name, scope=Scope.KERNEL, unit=unit, low=0.0, high=high, source=source, read=read)


def _cell(
    name: str, unit: str, high: float, source: str, read: Callable[[Observation], NDArray[np.generic]]
) -> Feature:
    return Feature(
        name=name, scope=Scope.KERNEL_SLICE, unit=unit, low=0.0, high=high, source=source, read=read
    )


FEATURES: tuple[Feature, ...] = (
    _kernel("present", "0 or 1", 1.0, "the pool; 0 marks padding", lambda o: np.ones(o.ready.shape[1])),
    _kernel("known_good", "0 or 1", 1.0, "role in the pool", lambda o: o.role_known_good),
    _kernel(
        "ready_ratio", "share of replicas", 1.0, "discovery, quarantine",
        lambda o: per_kernel(o, o.in_rotation),
    ),
    _kernel(
        "quarantined_ratio", "share of replicas", 1.0, "the controller",
        lambda o: per_kernel(o, o.quarantined),
    ),
    _kernel(
        "drifted_ratio", "share of replicas", 1.0, "probes against certified values; 0: not compared",
        _drifted,
    ),
    _kernel(
        "capacity_rps", f"log(1 + rps) / log(1 + {LARGEST_RPS:g})", 1.0,
        "engine counters, profile, replicas in rotation", lambda o: log_rate(o.capacity_rps),
    ),
    _kernel(
        "load_ratio", "offered rate over capacity", MOST_RATIO, "gateway counters, smoothed",
        lambda o: o.load_ratio,
    ),
    _kernel(
        "running", "log(1 + requests) / log(1 + 1000)", 1.0, "newest scrapes, per replica",
        lambda o: log_rate(o.running),
    ),
    _kernel(
        "waiting", "log(1 + requests) / log(1 + 1000)", 1.0, "newest scrapes, per replica",
        lambda o: log_rate(o.waiting),
    ),
    _kernel(
        "failed_ratio", "share of attempts, worst replica", 1.0, "gateway counters, smoothed",
        lambda o: worst_of_replicas(o, o.failed_ratio),
    ),
    _kernel(
        "failures_in_a_row", f"count / {MOST_FAILURES:g}, worst replica", 1.0, "gateway counters",
        lambda o: worst_of_replicas(o, o.consecutive_failed) / MOST_FAILURES,
    ),
    _cell("weight", "share of the slice", 1.0, "table in force", _weight),
    _cell("home", "0 or 1", 1.0, "the pool", _at_home),
    _cell("health", "H", MOST_RATIO, "health of the clauses in alarm", lambda o: o.health),
    _cell("guard", "0 or 1", 1.0, "level of H", lambda o: o.level >= _GUARD),
    _cell("fallback", "0 or 1", 1.0, "level of H", lambda o: o.level >= _FALLBACK),
    _cell("hard_violated", "0 or 1", 1.0, "hard clause condemned", lambda o: o.hard_violated),
    _cell("certified", "0 or 1", 1.0, "re-certified since it was condemned", lambda o: o.certified),
    _cell(
        "certified_loss", f"log(1 + {1 / LEAST_LOSS:g} TV) / log(1 + {MOST_LOSS / LEAST_LOSS:g})", 1.0,
        "profile: the healthy kernel against the reference", _certified_loss,
    ),
    *(
        _cell(f"excess_{letter}", "relative excess", MOST_RATIO, f"alarms of family {letter}", _family(i))
        for i, letter in enumerate("NSRO")
    ),
    _cell(
        "running_ratio", "share of its limit, worst clause", MOST_RATIO, "probes of the running window",
        _running,
    ),
    _cell(
        "evidence", "log-evidence over its threshold, worst clause", 2.0,
        "sequential detectors, of clauses that move traffic; 1 in alarm", lambda o: o.evidence_ratio,
    ),
    _cell(
        "evidence_count", "log(1 + observations) / log(1 + 1000)", 1.0, "probes of the judged window",
        lambda o: log_rate(o.evidence_count),
    ),
    _cell(
        "evidence_age_s", f"log(1 + s) / log(1 + {LONGEST_AGE_S:g})", 1.0, "newest probe",
        lambda o: log_time(o.evidence_age_s),
    ),
    Feature(
        name="offered_rps", scope=Scope.SLICE, unit=f"log(1 + rps) / log(1 + {LARGEST_RPS:g})", low=0.0,
        high=1.0, source="gateway counters, smoothed", read=lambda o: log_rate(o.offered_rps),
    ),
    Feature(
        name="shed_weight", scope=Scope.SLICE, unit="share of the slice", low=0.0, high=1.0,
        source="table in force", read=lambda o: o.table[:, :, -1],
    ),
    Feature(
        name="since_move_s", scope=Scope.SLICE, unit=f"log(1 + s) / log(1 + {LONGEST_AGE_S:g})", low=0.0,
        high=1.0, source="the controller", read=lambda o: log_time(o.since_move_s),
    ),
    Feature(
        name="load_ratio", scope=Scope.FLEET, unit="offered rate over capacity in rotation", low=0.0,
        high=MOST_RATIO, source="gateway counters, discovery",
        read=lambda o: o.offered_rps.sum(axis=1) / np.maximum(o.capacity_rps.sum(axis=1), 1e-9),
    ),
)  # fmt: skip


def of_scope(scope: Scope) -> tuple[Feature, ...]:
    """The features of one scope, in the order of the encoding."""
    return tuple(feature for feature in FEATURES if feature.scope is scope)
