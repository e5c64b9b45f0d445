"""What a learned policy is shown and how its answer is read: one list, from which everything else follows.

``FEATURES`` names every number with its unit, bounds and source. The encoder, the bounds of the
environment's observation space and the table in ``docs/environment.md`` are built from it.

Layout. One row per kernel, padded with zeros to ``kernels_max`` rows: first the features of the kernel
itself, then those of (kernel, slice), slice by slice; behind the rows those of each slice and of the
fleet. Renaming or reordering kernels reorders the rows and changes nothing else, so one network that is
applied to every row serves any pool up to ``kernels_max``. Reading uses the ``Observation`` alone: what
a policy may know.

An action is one number in [-1, 1] per (slice, kernel) and one per slice for shedding;
``controller.actions`` says what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import Level
from controller.actions import action_from_table, table_from_action
from controller.ports import Observation

#: Changes whenever a feature, its scale or the meaning of an action changes; artefacts carry it.
ENCODING_VERSION = 4
#: Ages and times since something are shown as ``log(1 + t) / log(1 + LONGEST_S)``.
LONGEST_S = 3600.0
#: Rates are shown as ``log(1 + r) / log(1 + LARGEST_RPS)``.
LARGEST_RPS = 1000.0
#: Healths, loads and evidence above this many times their limit look alike.
MOST_RATIO = 4.0
#: Certified losses are shown as ``log(1 + l / LEAST_LOSS) / log(1 + MOST_LOSS / LEAST_LOSS)``.
LEAST_LOSS, MOST_LOSS = 0.001, 0.1
#: Failures in a row above this look alike; the controller itself acts at five.
MOST_FAILURES = 10.0

_LOG_LONGEST, _LOG_LARGEST = np.log1p(LONGEST_S), np.log1p(LARGEST_RPS)
# Plain integers: comparing with an enumeration takes longer.
_GUARD, _FALLBACK = int(Level.GUARD), int(Level.FALLBACK)

Values = NDArray[np.float64]


class Scope(Enum):
    """What there is one number of."""

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
    source: str
    read: Callable[[Observation], NDArray[np.generic]]


def log_time(seconds: Values) -> Values:
    """Times in seconds (inf: never) on a logarithmic scale, 0 now and 1 from ``LONGEST_S`` on."""
    bounded = np.minimum(np.maximum(seconds, 0.0), LONGEST_S)
    return np.asarray(np.log1p(bounded) / _LOG_LONGEST)


def log_rate(rps: Values) -> Values:
    """Rates in requests per second on a logarithmic scale, 1 at ``LARGEST_RPS``."""
    return np.asarray(np.log1p(rps) / _LOG_LARGEST)


def _per_kernel(seen: Observation, values: NDArray[np.generic]) -> Values:
    """Mean [B, K] of ``values`` [B, R] over the kernel's replicas."""
    mean = np.zeros(seen.ready.shape)
    _mean_of_members(mean, np.ascontiguousarray(values), seen.replica_kernel)
    return mean


def _worst(seen: Observation, values: NDArray[np.generic]) -> Values:
    """Largest [B, K] of ``values`` [B, R] >= 0 over the kernel's replicas."""
    worst = np.zeros(seen.ready.shape)
    _worst_of_members(worst, np.ascontiguousarray(values), seen.replica_kernel)
    return worst


@njit(cache=True)
def _mean_of_members(mean, values, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """A kernel without replicas has 0."""
    count = np.zeros(mean.shape[1], np.int64)
    for r in range(len(owner)):
        count[owner[r]] += 1
    for b in range(mean.shape[0]):
        for r in range(len(owner)):
            mean[b, owner[r]] += values[b, r]
        for k in range(mean.shape[1]):
            mean[b, k] /= max(count[k], 1)


@njit(cache=True)
def _worst_of_members(worst, values, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    for b in range(worst.shape[0]):
        for r in range(len(owner)):
            worst[b, owner[r]] = max(worst[b, owner[r]], values[b, r])


def _at_home(seen: Observation) -> NDArray[np.bool_]:
    return np.asarray(np.arange(seen.ready.shape[1])[:, None] == seen.home)


def _weight(seen: Observation) -> Values:
    return seen.table[:, :, :-1].transpose(0, 2, 1)


def _family(index: int) -> Callable[[Observation], Values]:
    def read(seen: Observation) -> Values:
        return np.zeros(seen.health.shape) if seen.family_excess is None else seen.family_excess[..., index]

    return read


def _running(seen: Observation) -> Values:
    return np.zeros(seen.health.shape) if seen.running_ratio is None else seen.running_ratio


def _evidence(seen: Observation) -> Values:
    return np.zeros(seen.health.shape) if seen.evidence_ratio is None else seen.evidence_ratio


def _certified_loss(seen: Observation) -> Values:
    if seen.certified_loss is None:
        return np.zeros(seen.health.shape)
    return np.asarray(np.log1p(seen.certified_loss / LEAST_LOSS) / np.log1p(MOST_LOSS / LEAST_LOSS))


def _changed(seen: Observation) -> Values:
    return np.zeros(seen.ready.shape) if seen.changed is None else _per_kernel(seen, seen.changed)


def _queue(seen: Observation) -> Values:
    return np.zeros(seen.ready.shape) if seen.waiting is None else seen.waiting


def _in_use(seen: Observation) -> Values:
    return np.zeros(seen.ready.shape) if seen.running is None else seen.running


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
        lambda o: _per_kernel(o, o.in_rotation),
    ),
    _kernel(
        "quarantined_ratio", "share of replicas", 1.0, "the controller",
        lambda o: _per_kernel(o, o.quarantined),
    ),
    _kernel(
        "changed_ratio", "share of replicas", 1.0, "probes against certified values; 0 where nobody compares",
        _changed,
    ),
    _kernel(
        "capacity_rps", f"log(1 + rps) / log(1 + {LARGEST_RPS:g})", 1.0,
        "profile and replicas in rotation", lambda o: log_rate(o.capacity_rps),
    ),
    _kernel(
        "load_ratio", "offered rate over capacity", MOST_RATIO, "gateway counters, smoothed",
        lambda o: o.load_ratio,
    ),
    _kernel(
        "running", "log(1 + requests) / log(1 + 1000)", 1.0, "newest scrapes, per replica",
        lambda o: log_rate(_in_use(o)),
    ),
    _kernel(
        "waiting", "log(1 + requests) / log(1 + 1000)", 1.0, "newest scrapes, per replica",
        lambda o: log_rate(_queue(o)),
    ),
    _kernel(
        "failed_ratio", "share of attempts, worst replica", 1.0, "gateway counters, smoothed",
        lambda o: _worst(o, o.failed_ratio),
    ),
    _kernel(
        "failures_in_a_row", f"count / {MOST_FAILURES:g}, worst replica", 1.0, "gateway counters",
        lambda o: _worst(o, o.consecutive_failed) / MOST_FAILURES,
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
        "sequential detectors, of clauses that move traffic; 1 in alarm", _evidence,
    ),
    _cell(
        "evidence_count", "log(1 + units) / log(1 + 1000)", 1.0, "probes of the judged window",
        lambda o: log_rate(o.evidence_count),
    ),
    _cell(
        "evidence_age_s", f"log(1 + s) / log(1 + {LONGEST_S:g})", 1.0, "newest probe",
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
        name="since_move_s", scope=Scope.SLICE, unit=f"log(1 + s) / log(1 + {LONGEST_S:g})", low=0.0,
        high=1.0, source="the controller", read=lambda o: log_time(o.since_move_s),
    ),
    Feature(
        name="load_ratio", scope=Scope.FLEET, unit="offered rate over capacity in rotation", low=0.0,
        high=MOST_RATIO, source="gateway counters, discovery",
        read=lambda o: o.offered_rps.sum(axis=1) / np.maximum(o.capacity_rps.sum(axis=1), 1e-9),
    ),
)  # fmt: skip


def _of(scope: Scope) -> tuple[Feature, ...]:
    return tuple(feature for feature in FEATURES if feature.scope is scope)


_KERNEL, _CELL, _SLICE, _FLEET = (_of(scope) for scope in Scope)
#: Bounds of the features of each scope, as arrays.
_ENDS = {
    scope: (np.array([f.low for f in _of(scope)]), np.array([f.high for f in _of(scope)])) for scope in Scope
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """The encoding of pools of up to ``kernels_max`` kernels under contracts of ``slices`` slices."""

    kernels_max: int
    slices: int

    @property
    def row_size(self) -> int:
        """Numbers per kernel, F."""
        return len(_KERNEL) + self.slices * len(_CELL)

    @property
    def tail_size(self) -> int:
        """Numbers behind the rows, G."""
        return self.slices * len(_SLICE) + len(_FLEET)

    @property
    def size(self) -> int:
        """Length of an encoded observation, ``kernels_max * F + G``."""
        return self.kernels_max * self.row_size + self.tail_size

    @property
    def action_size(self) -> int:
        """Length of an action: a number per (slice, kernel or shed)."""
        return self.slices * (self.kernels_max + 1)

    def names(self) -> tuple[str, ...]:
        """One name per number of an encoded observation."""
        row = [feature.name for feature in _KERNEL]
        row += [f"slice{s}.{feature.name}" for s in range(self.slices) for feature in _CELL]
        rows = [f"kernel{k}.{name}" for k in range(self.kernels_max) for name in row]
        tail = [f"slice{s}.{feature.name}" for s in range(self.slices) for feature in _SLICE]
        return (*rows, *tail, *(f"fleet.{feature.name}" for feature in _FLEET))

    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``(low, high)``, float32 [size]."""
        return self._spread("low"), self._spread("high")

    def _spread(self, side: str) -> NDArray[np.float32]:
        def of(features: tuple[Feature, ...]) -> list[float]:
            return [getattr(feature, side) for feature in features]

        row = of(_KERNEL) + self.slices * of(_CELL)
        return np.array(self.kernels_max * row + self.slices * of(_SLICE) + of(_FLEET), dtype=np.float32)

    def encode(self, seen: Observation) -> NDArray[np.float32]:
        """Float32 [B, size], within ``bounds``."""
        self._check(seen.ready.shape[1], seen.table.shape[1])
        batch, own = seen.ready.shape[0], len(_KERNEL)
        encoded = np.zeros((batch, self.size), dtype=np.float32)
        row, end = self.row_size, self.kernels_max * self.row_size
        kernels, slices = seen.ready.shape[1], self.slices
        _write(encoded, _KERNEL, seen, (kernels,), (0, row, 0))
        _write(encoded, _CELL, seen, (kernels, slices), (own, row, len(_CELL)))
        _write(encoded, _SLICE, seen, (slices,), (end, len(_SLICE), 0))
        _write(encoded, _FLEET, seen, (), (end + slices * len(_SLICE), 0, 0))
        return encoded

    def split(self, encoded: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``(rows [..., kernels_max, F], tail [..., G])`` of an encoded observation; views."""
        edge = self.kernels_max * self.row_size
        shape = (*encoded.shape[:-1], self.kernels_max, self.row_size)
        return encoded[..., :edge].reshape(shape), encoded[..., edge:]

    def table(self, action: NDArray[np.floating], home: NDArray[np.int64], kernels: int) -> Values:
        """Routing table float64 [B, S, K + 1] of actions [B, action_size] for a pool of ``kernels``."""
        self._check(kernels, len(home))
        logits = np.asarray(action, dtype=np.float64).reshape(-1, self.slices, self.kernels_max + 1)
        return table_from_action(logits, home, kernels)

    def action(self, table: Values, home: NDArray[np.int64]) -> NDArray[np.float32]:
        """Actions [B, action_size] that ask for ``table``: the way back."""
        self._check(table.shape[2] - 1, table.shape[1])
        return action_from_table(table, home, self.kernels_max).reshape(len(table), -1)

    def _check(self, kernels: int, slices: int) -> None:
        if kernels > self.kernels_max or slices != self.slices:
            raise ValueError(
                f"encoder: expected at most {self.kernels_max} kernels and {self.slices} slices, "
                f"got {kernels} and {slices}"
            )


def _write(
    encoded: NDArray[np.float32], features: tuple[Feature, ...], seen: Observation, shape: tuple[int, ...],
    place: tuple[int, int, int],
) -> None:  # fmt: skip
    """Put the features' values [B, *shape], clipped, at ``place``: f + [0] + i [1] + j [2]."""
    batch, (rows, columns) = encoded.shape[0], (*shape, 1, 1)[:2]
    values = np.empty((len(features), batch, *shape))
    for index, feature in enumerate(features):
        values[index] = feature.read(seen)
    grid = values.reshape(len(features), batch, rows, columns)
    _place(encoded, grid, *place, *_ENDS[features[0].scope])


@njit(cache=True)
def _place(encoded, values, first, outer, inner, low, high):  # type: ignore[no-untyped-def]  # pragma: no cover
    features, batch, rows, columns = values.shape
    for b in range(batch):
        for i in range(rows):
            for j in range(columns):
                for f in range(features):
                    value = values[f, b, i, j]
                    # A NaN (nothing known yet) is shown as the lower bound, so none reaches a policy.
                    value = low[f] if np.isnan(value) else min(max(value, low[f]), high[f])
                    encoded[b, first + f + i * outer + j * inner] = value


def feature_table() -> str:
    """The features as a Markdown table, in the order of the encoding."""
    lines = ["| feature | one per | unit | low | high | source |", "|---|---|---|---|---|---|"]
    for scope in Scope:
        lines += [
            f"| `{f.name}` | {f.scope.value} | {f.unit} | {f.low:g} | {f.high:g} | {f.source} |"
            for f in _of(scope)
        ]
    return "\n".join(lines) + "\n"
