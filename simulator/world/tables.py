"""Measured samples as arrays: for traffic, for probes, and for the clauses that they break.

One table per kernel. Conditions are ordered by measured drift, healthy first, so that a higher index is a
worse state. Certify prompts are only used to order the ladder, probe prompts are replayed by simulated
probes, and traffic prompts are the ground truth: no prompt has two roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.assess.samples import KernelSamples
from contracts.compiled.contract import CompiledContract
from contracts.documents.profile import HEALTHY
from contracts.telemetry import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBy:
    """How a pool was measured: exactly, or only by the most probable tokens."""

    quality: str = "tv_mean@full_vocab"
    """Column with the distance of a served answer from the reference."""
    drift: str = "kl_mean@full_vocab"
    """Column that orders doses."""
    notes: tuple[str, ...] = ()
    """Notes on the estimators; empty if all are those of the contract."""

    @property
    def estimator(self) -> str:
        """Of the quality."""
        return self.quality.partition("@")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRoles:
    """The prompts of each role, the same for every kernel of a pool.

    Axes: N traffic prompts, U probe prompts.
    """

    traffic: NDArray[np.int64]
    """[N], rows of the samples file, slice by slice."""
    traffic_slice: NDArray[np.int64]
    """[N], index of each prompt's slice."""
    probe: NDArray[np.int64]
    """[U], rows of the samples file, slice by slice."""
    probe_slice: NDArray[np.int64]
    """[U], index of each prompt's slice."""
    probe_ids: NDArray[np.int64]
    """[U], the prompts' own ids."""
    probe_tokens: NDArray[np.int64]
    """[U], their lengths."""

    def traffic_of(self, slice_index: int) -> NDArray[np.int64]:
        """Indices of a slice's prompts on the traffic axis."""
        return np.flatnonzero(self.traffic_slice == slice_index)

    @property
    def mean_probe_tokens(self) -> float:
        """Mean tokens of a probe, with equal weight for each slice because probes go round robin."""
        slices = range(int(self.probe_slice.max()) + 1)
        return float(np.mean([self.probe_tokens[self.probe_of(index)].mean() for index in slices]))

    def probe_of(self, slice_index: int) -> NDArray[np.int64]:
        """Indices of a slice's prompts on the probe axis."""
        return np.flatnonzero(self.probe_slice == slice_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """One kernel, measured.

    Axes: Q conditions in increasing drift, N traffic prompts, U probe prompts, J repeats, M probe metrics.
    """

    conditions: tuple[str, ...]
    """[Q] names, ``healthy`` first."""
    drift: NDArray[np.float64]
    """[Q], mean KL over certify prompts, nats."""
    quality: NDArray[np.float64]
    """[Q, N], total variation to the reference."""
    probe: NDArray[np.float64]
    """[Q, U, J, M]"""
    violating: NDArray[np.bool_]
    """[Q, S], the condition breaks a probe-judged clause on the slice's traffic prompts."""


def plan_prompts(samples: KernelSamples, slices: tuple[str, ...], tokens: Mapping[int, int]) -> PromptRoles:
    """The prompts of each role for ``slices``; the roles are disjoint because prompt ids are unique.

    ``tokens`` maps a prompt id to its length.
    """
    traffic = [samples.rows("traffic", name) for name in slices]
    probe = [samples.rows("probe", name) for name in slices]
    rows = np.concatenate(probe)
    return PromptRoles(
        traffic=np.concatenate(traffic),
        traffic_slice=_owner(traffic),
        probe=rows,
        probe_slice=_owner(probe),
        probe_ids=samples.prompt_ids[rows],
        probe_tokens=np.array([tokens[int(prompt)] for prompt in samples.prompt_ids[rows]], dtype=np.int64),
    )


def build_table(
    samples: KernelSamples,
    plan: PromptRoles,
    metrics: tuple[str, ...],
    contract: CompiledContract,
    by: MeasuredBy,
) -> KernelTable:
    """The table of one kernel; ``metrics``: the layout's probe metrics, NaN if not measured."""
    order = condition_order(samples, by)
    names = tuple(samples.condition_names[index] for index in order)
    quality = np.stack([samples.prompt_values(by.quality, name, plan.traffic) for name in names])
    columns = np.stack([_column(samples, metric) for metric in metrics], axis=-1)
    values = np.stack(
        [[samples.prompt_values(metric, name, plan.traffic) for metric in metrics] for name in names]
    )
    return KernelTable(
        conditions=names,
        drift=np.array([mean_drift(samples, name, by) for name in names]),
        # A fault that changes no numbers (slower steps) may lack measurements; then the healthy ones are
        # used.
        quality=np.clip(np.where(np.isnan(quality), quality[0], quality), 0.0, 1.0),
        probe=columns[order][:, plan.probe],
        violating=judge_values(values, plan, contract),
    )


def condition_order(samples: KernelSamples, by: MeasuredBy) -> list[int]:
    """Indices of the conditions, healthy first, then by mean drift over certify prompts, then by name."""
    names = samples.condition_names
    rest = [index for index, name in enumerate(names) if name != HEALTHY]
    rest.sort(key=lambda index: (mean_drift(samples, names[index], by), names[index]))
    return [samples.condition(HEALTHY), *rest]


def is_measured(samples: KernelSamples, condition: str, by: MeasuredBy) -> bool:
    """Whether the quality of every traffic prompt was measured under ``condition``."""
    values = samples.prompt_values(by.quality, condition, samples.rows("traffic"))
    return bool(np.isfinite(values).all())


def mean_drift(samples: KernelSamples, condition: str, by: MeasuredBy) -> float:
    """Mean KL of ``condition`` over the certify prompts, nats."""
    values = samples.prompt_values(by.drift, condition, samples.rows("certify"))
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def certified_loss(samples: KernelSamples, slices: tuple[str, ...], by: MeasuredBy) -> NDArray[np.float64]:
    """Mean quality loss of the healthy kernel on a slice's certify prompts, float64 [S]; 0: unmeasured."""
    values = [samples.prompt_values(by.quality, HEALTHY, samples.rows("certify", name)) for name in slices]
    known = [mine[np.isfinite(mine)] for mine in values]
    return np.array([mine.mean() if mine.size else 0.0 for mine in known])


def judge_values(
    values: NDArray[np.float64], plan: PromptRoles, contract: CompiledContract
) -> NDArray[np.bool_]:
    """Bool [Q, S]: some probe-judged clause is broken by the traffic prompts' values [Q, M, N]."""
    broken = np.zeros((values.shape[0], len(contract.slices)), dtype=np.bool_)
    for clause in np.flatnonzero(contract.source == int(Source.PROBE)):
        measured = values[:, int(contract.column[clause]), :]
        for slice_index in np.flatnonzero(contract.applies[clause]):
            mine = measured[:, plan.traffic_slice == slice_index]
            broken[:, slice_index] |= clause_broken(mine, contract, int(clause))
    return broken


def clause_broken(values: NDArray[np.float64], contract: CompiledContract, clause: int) -> NDArray[np.bool_]:
    """Bool [Q]: the observations ``values`` [Q, n] break the clause; unmeasured ones do not count."""
    found = clause_value(values, contract, clause)
    if contract.is_rate[clause]:
        return np.asarray(found > contract.rate_limit[clause])
    sense, threshold = float(contract.sense[clause]), float(contract.threshold[clause])
    return np.asarray(np.isfinite(values).any(axis=1) & (sense * found > sense * threshold))


def clause_value(values: NDArray[np.float64], contract: CompiledContract, clause: int) -> NDArray[np.float64]:
    """Float64 [Q], the value by which the clause is judged: the share beyond the threshold, or the clipped
    mean, of the measured observations of ``values`` [Q, n]; 0 if there are none.
    """
    if contract.is_rate[clause]:
        return share_beyond(values, contract, clause)
    known = np.isfinite(values)
    clipped = np.where(known, np.minimum(values, contract.clip[clause]), 0.0)
    return np.asarray(clipped.sum(axis=1) / np.maximum(known.sum(axis=1), 1))


def share_beyond(values: NDArray[np.float64], contract: CompiledContract, clause: int) -> NDArray[np.float64]:
    """Share float64 [Q] of the measured observations ``values`` [Q, n] that lie beyond the threshold."""
    sense, threshold = float(contract.sense[clause]), float(contract.threshold[clause])
    known = np.isfinite(values)
    beyond = known & (sense * values > sense * threshold)
    return np.asarray(beyond.sum(axis=1) / np.maximum(known.sum(axis=1), 1))


def certified_probe_values(
    tables: tuple[KernelTable, ...], plan: PromptRoles, slices: int
) -> NDArray[np.float64]:
    """Healthy probe values float64 [K, S, n, M] of every kernel; slices with fewer prompts are padded with
    NaN.
    """
    rows = [plan.probe_of(place) for place in range(slices)]
    most = max(own.size for own in rows)
    values = np.full((len(tables), slices, most, tables[0].probe.shape[3]), np.nan)
    for kernel, table in enumerate(tables):
        for place, own in enumerate(rows):
            values[kernel, place, : own.size] = table.probe[0, own, 0]
    return values


def _owner(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(rows), dtype=np.int64), [mine.size for mine in rows])


def _column(samples: KernelSamples, metric: str) -> NDArray[np.float64]:
    if metric in samples.metric_names:
        return samples.values[:, :, :, samples.metric_names.index(metric)]
    return np.full(samples.values.shape[:3], np.nan)
