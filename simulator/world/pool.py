"""The measured pool: kernels with their profiles and samples, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from contracts.assess.samples import KernelSamples
from contracts.compiled.build import edges_for
from contracts.compiled.contract import FleetLayout
from contracts.documents.contract import KernelContract
from contracts.documents.pool import KernelPool, PoolSpec
from contracts.documents.profile import HEALTHY
from contracts.documents.scenario import ScenarioSpec
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from contracts.metrics import metric
from contracts.rules.estimators import AsMeasured, first_measured, with_measured_estimators
from contracts.telemetry import Source
from simulator.world.kernel_measurements import MeasuredKernel, measured_kernel, profile_refusal
from simulator.world.tables import MeasuredBy, is_measured


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPool:
    """A pool, its contract and the measurements of its kernels."""

    spec: PoolSpec
    file: str
    """File that contains the pool."""
    contract: KernelContract
    """With the measured estimators."""
    kernels: tuple[MeasuredKernel, ...]
    """[K], in pool order."""
    by: MeasuredBy

    @property
    def prompt_tokens(self) -> Mapping[int, int]:
        """Length of every golden prompt by its id, in tokens."""
        return self.kernels[0].prompt_tokens

    @property
    def slices(self) -> tuple[str, ...]:
        """Slices that have a home, in the contract's order; the pool serves no others."""
        homes = {home.slice for home in self.spec.home}
        return tuple(part.name for part in self.contract.spec.slices if part.name in homes)

    def home_of(self, slice_name: str) -> int:
        """Index of the kernel that serves the slice while everything is healthy."""
        names = [kernel.entry.name for kernel in self.kernels]
        return next(names.index(home.kernel) for home in self.spec.home if home.slice == slice_name)


def load_pool(spec: ScenarioSpec, file: str) -> MeasuredPool:
    """Pool, contract and measured kernels that scenario ``spec`` in ``file`` refers to."""
    pool, pool_file = _pool(spec, file)
    contract = load_as(KernelContract, resolve_uri(spec.contract, file))
    kernels = tuple(measured_kernel(entry, pool_file) for entry in pool.kernels)
    columns = _columns_of_all([kernel.samples for kernel in kernels])
    judged = with_measured_estimators(contract, columns)
    by = _measured_by(columns, judged)
    loaded = MeasuredPool(spec=pool, file=pool_file, contract=judged.contract, kernels=kernels, by=by)
    _check_names(loaded, {part.slice for part in spec.workload.slice_mix})
    _check_samples(loaded)
    return loaded


def _columns_of_all(samples: list[KernelSamples]) -> set[str]:
    """Columns that were measured healthy on some prompt of every kernel."""
    measured = [
        {
            name
            for name, known in zip(
                one.metric_names,
                np.isfinite(one.values[one.condition(HEALTHY)]).any(axis=(0, 1)),
                strict=True,
            )
            if known
        }
        for one in samples
        if HEALTHY in one.condition_names
    ]
    return set.intersection(*measured) if measured else set()


def _measured_by(columns: set[str], judged: AsMeasured) -> MeasuredBy:
    """The most informative estimators that all kernels share; if there are none, the exact ones, which are
    refused later.
    """
    quality, drift = first_measured("tv_mean", columns), first_measured("kl_mean", columns)
    usual = MeasuredBy()
    notes = judged.notes()
    if quality not in (None, usual.quality):
        notes.insert(0, f"quality loss and drift are lower bounds: {quality}, {drift}")
    return MeasuredBy(quality=quality or usual.quality, drift=drift or usual.drift, notes=tuple(notes))


def layout_of(pool: MeasuredPool, extra: dict[str, int]) -> FleetLayout:
    """Axes of the fleet; ``extra`` replicas per kernel, added by later scale-ups, come after the
    first ones.
    """
    replicas: list[str] = []
    owner: list[int] = []
    zones: list[str] = []
    for index, kernel in enumerate(pool.kernels):
        entry = kernel.entry
        count = entry.replicas + extra.get(entry.name, 0)
        replicas += [f"{entry.name}-{number}" for number in range(count)]
        zones += [entry.zone_of(number) for number in range(count)]
        owner += [index] * count
    return FleetLayout(
        kernels=tuple(kernel.entry.name for kernel in pool.kernels),
        slices=pool.slices,
        replicas=tuple(replicas),
        replica_kernel=np.array(owner, dtype=np.int64),
        probe_metrics=probe_metrics(pool.contract),
        known_good=_known_good(pool),
        zones=tuple(zones),
        edges_ms=edges_for(pool.contract),
    )


def probe_metrics(contract: KernelContract) -> tuple[str, ...]:
    """Columns that the contract's clauses read from probes, in the order of the clauses."""
    names: dict[str, None] = {}
    for clause in contract.spec.clauses:
        registered = metric(clause.metric)
        if registered.source == Source.PROBE:
            names[registered.column(clause.estimator)] = None
    return tuple(names)


def _pool(spec: ScenarioSpec, file: str) -> tuple[PoolSpec, str]:
    if (spec.pool is None) == (spec.pool_uri is None):
        raise profile_refusal(
            file, "spec.pool", "exactly one of pool and pool_uri", "both or none", "keep one"
        )
    if spec.pool is not None:
        return spec.pool, file
    path = resolve_uri(str(spec.pool_uri), file)
    return load_as(KernelPool, path).spec, str(path)


def _known_good(pool: MeasuredPool) -> int:
    for index, kernel in enumerate(pool.kernels):
        if kernel.entry.role == "known_good":
            return index
    raise profile_refusal(
        pool.file, "spec.kernels", "one kernel of role known_good", "none", "name the fallback"
    )


def _check_names(pool: MeasuredPool, asked: set[str]) -> None:
    """DocumentError for duplicate kernel names, and for a slice in ``asked`` without a home."""
    names = [kernel.entry.name for kernel in pool.kernels]
    if len(set(names)) != len(names):
        raise profile_refusal(
            pool.file, "spec.kernels", "unique kernel names", ", ".join(names), "rename one"
        )
    homes = {home.slice: home.kernel for home in pool.spec.home}
    for part in pool.contract.spec.slices:
        name = part.name
        if (name in asked or name in homes) and homes.get(name) not in names:
            actual = homes.get(name) or "nothing"
            raise profile_refusal(
                pool.file, f"spec.home[{name}]", "a kernel of the pool", actual, "name its home kernel"
            )


def _check_samples(pool: MeasuredPool) -> None:
    first = pool.kernels[0].samples
    for kernel in pool.kernels:
        samples, where = kernel.samples, kernel.entry.profile
        if HEALTHY not in samples.condition_names or not is_measured(samples, HEALTHY, pool.by):
            expected = f"{HEALTHY} measured on every traffic prompt, column {pool.by.quality}"
            raise profile_refusal(where, "condition_names", expected, "less", "measure the kernel healthy")
        same = np.array_equal(samples.prompt_ids, first.prompt_ids)
        if not same or samples.prompt_split != first.prompt_split:
            expected = f"the prompts and splits of {pool.kernels[0].entry.profile}"
            raise profile_refusal(
                where, "prompt_ids", expected, "others", "measure all kernels of a pool on one prompt file"
            )
    lengths = pool.prompt_tokens
    if not all(int(prompt) in lengths for prompt in first.prompt_ids):
        actual = f"{len(lengths)} prompts for {first.prompt_ids.size} measured ones"
        where = pool.kernels[0].profile.spec.prompts.uri
        raise profile_refusal(where, "id", "every measured prompt", actual, "measure the profile again")
    for split in ("probe", "traffic"):
        for name in pool.slices:
            if not first.rows(split, name).size:
                raise profile_refusal(
                    pool.kernels[0].entry.profile,
                    "prompt_slice",
                    f"{split} prompts of slice {name}",
                    "none",
                    "measure prompts of every slice of the contract",
                )
