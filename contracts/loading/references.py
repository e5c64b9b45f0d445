"""What a document refers to: do the files exist, are they the pinned ones, do the names in them fit?

``reference_breaches`` takes documents whose own rules are broken too, so that all problems are reported in
one pass.

The loader judges one document; this module follows its URIs. Every problem is reported at the line that
refers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from contracts.documents import (
    Document,
    FaultDrill,
    FileRef,
    KernelContract,
    KernelPool,
    KernelProfile,
    MetaContract,
    PolicyArtifact,
    PoolKernel,
    PoolSpec,
    RoutePolicy,
    Scenario,
    ScenarioSpec,
    ScheduledFault,
    Suite,
)
from contracts.documents.drill import DrillSpec
from contracts.documents.meta import MetaSpec
from contracts.documents.route import RoutePolicySpec
from contracts.documents.scenario import FaultTarget
from contracts.documents.suite import SuiteSpec
from contracts.errors import DocumentError, KeyPath
from contracts.loading.loader import load_as
from contracts.loading.profiles import kernel_profile
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import check_pinned, resolve_uri
from contracts.rules.breach import Breach, prefixed
from contracts.rules.scenario import drill_breaches, fault_breaches, scenario_breaches
from contracts.workload.azure_trace import load_trace

DocumentT = TypeVar("DocumentT", bound=Document)
Faults = list[tuple[KeyPath, ScheduledFault]]


def reference_breaches(document: Document, file: str) -> Iterator[Breach]:
    """What is wrong with what ``document``, read from ``file``, refers to, as broken rules."""
    yield from _Follower(file=file).follow(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Follower:
    """Follows the URIs of one document file."""

    file: str

    def follow(self, document: Document) -> Iterator[Breach]:
        match document:
            case KernelProfile(spec=spec):
                yield from self._pinned(FileRef(uri=spec.samples.uri, sha256=spec.samples.sha256), "samples")
                yield from self._pinned(spec.prompts, "prompts")
                if spec.reference.log_probs is not None:
                    yield from self._pinned(spec.reference.log_probs, "reference", "log_probs")
            case KernelPool(spec=spec):
                yield from self._profiles(spec, ("spec",))
            case Scenario(spec=spec):
                yield from self._scenario(spec)
            case Suite(spec=spec):
                yield from self._suite(spec)
            case RoutePolicy(spec=spec):
                yield from self._route(spec)
            case FaultDrill(spec=spec):
                yield from self._drill(spec)
            case MetaContract(spec=spec):
                yield from self._suites(spec)
            case PolicyArtifact(spec=spec):
                yield from self._pinned(spec.onnx, "onnx")
            case _:
                pass

    def _pinned(self, ref: FileRef, *keys: str) -> Iterator[Breach]:
        try:
            check_pinned(ref, resolve_uri(self.file, "selvage"))
        except DocumentError as error:
            yield from first_problem_breach(error, ("spec", *keys, "uri"))

    def _load(self, kind: type[DocumentT], uri: str) -> DocumentT:
        return load_as(kind, self._place(uri))

    def _loads(self, kind: type[Document], uri: str, place: KeyPath) -> Iterator[Breach]:
        try:
            self._load(kind, uri)
        except DocumentError as error:
            yield from first_problem_breach(error, place)

    def _profiles(self, pool: PoolSpec, place: KeyPath) -> Iterator[Breach]:
        for index, kernel in enumerate(pool.kernels):
            try:
                kernel_profile(kernel, resolve_uri(self.file, "selvage"))
            except DocumentError as error:
                yield from first_problem_breach(error, (*place, "kernels", index, "profile"))

    def _suites(self, spec: MetaSpec) -> Iterator[Breach]:
        if spec.certification is None:
            return
        for key in ("incidents", "quiet"):
            uri: str = getattr(spec.certification, key)
            yield from self._loads(Suite, uri, ("spec", "certification", key))

    def _suite(self, spec: SuiteSpec) -> Iterator[Breach]:
        for index, scenario in enumerate(spec.scenarios):
            if scenario.uri is not None:
                yield from self._loads(Scenario, scenario.uri, ("spec", "scenarios", index, "uri"))
        if spec.route_policy is not None:
            yield from self._loads(RoutePolicy, spec.route_policy, ("spec", "route_policy"))
        bases: dict[str, KeyPath] = {} if spec.base is None else {spec.base: ("spec", "base")}
        for index, scenario in enumerate(spec.scenarios):
            if scenario.base is not None:
                bases.setdefault(scenario.base, ("spec", "scenarios", index, "base"))
        for uri, place in bases.items():
            yield from self._over(spec, uri, place)

    def _over(self, spec: SuiteSpec, uri: str, place: KeyPath) -> Iterator[Breach]:
        """Faults of those scenarios of a suite that build on the scenario at ``uri``, named at ``place``."""
        try:
            base = self._load(Scenario, uri).spec
            pool, home = _Follower(file=self._place(uri))._pool(base)
        except DocumentError as error:
            yield from first_problem_breach(error, place)
            return
        faults: Faults = [
            ((index, "faults", at), fault)
            for index, scenario in enumerate(spec.scenarios)
            for at, fault in enumerate(scenario.faults)
            if (scenario.base or spec.base) == uri
        ]
        within = _of_faults(faults, pool, base.horizon_s)
        yield from _added(("spec", "scenarios"), _of_faults(faults, None), within)
        yield from home._conditions(faults, pool, ("spec", "scenarios"))

    def _scenario(self, spec: ScenarioSpec) -> Iterator[Breach]:
        try:
            contract = self._load(KernelContract, spec.contract)
        except DocumentError as error:
            yield from first_problem_breach(error, ("spec", "contract"))
        else:
            yield from _unknown_slices(spec, contract)
        if spec.workload.trace_uri is not None:
            yield from self._trace(spec.workload.trace_uri, ("spec", "workload", "trace_uri"))
        if (spec.pool is None) == (spec.pool_uri is None):
            return  # the kind's own rules tell of it
        try:
            pool, home = self._pool(spec)
        except DocumentError as error:
            yield from first_problem_breach(error, ("spec", "pool_uri"))
            return
        if spec.pool is not None:
            yield from self._profiles(pool, ("spec", "pool"))
        else:
            inline = spec.model_copy(update={"pool": pool, "pool_uri": None})
            yield from _added(("spec",), scenario_breaches(spec), scenario_breaches(inline))
        faults: Faults = [((index,), fault) for index, fault in enumerate(spec.faults)]
        yield from home._conditions(faults, pool, ("spec", "faults"))

    def _route(self, spec: RoutePolicySpec) -> Iterator[Breach]:
        yield from self._loads(MetaContract, spec.meta_contract, ("spec", "meta_contract"))
        if spec.artifact is not None:
            yield from self._pinned(spec.artifact, "artifact")

    def _drill(self, spec: DrillSpec) -> Iterator[Breach]:
        """A drill's contract, and its pool where it has a file: a cluster may have a pool of that name."""
        if spec.contract is not None:
            yield from self._loads(KernelContract, spec.contract, ("spec", "contract"))
        uri = spec.pool_uri or f"{LIBRARY}{spec.pool}.yaml"
        if spec.pool_uri is None and not resolve_uri(uri, self.file).is_file():
            return
        try:
            pool = self._load(KernelPool, uri).spec
        except DocumentError as error:
            yield from first_problem_breach(error, ("spec", "pool_uri"))
            return
        alone, within = drill_breaches(spec), drill_breaches(spec, pool)
        yield from _added(("spec",), alone, within)

    def _pool(self, spec: ScenarioSpec) -> tuple[PoolSpec, _Follower]:
        """The pool of a scenario and a follower of the URIs in it; DocumentError if it cannot be read."""
        if spec.pool is not None:
            return spec.pool, self
        assert spec.pool_uri is not None  # one of the two, says the loader
        return self._load(KernelPool, spec.pool_uri).spec, _Follower(file=self._place(spec.pool_uri))

    def _place(self, uri: str) -> str:
        return str(resolve_uri(uri, resolve_uri(self.file, "selvage")))

    def _trace(self, uri: str, place: KeyPath) -> Iterator[Breach]:
        try:
            load_trace(self._place(uri))
        except DocumentError as error:
            yield from first_problem_breach(error, place)

    def _conditions(self, faults: Faults, pool: PoolSpec, place: KeyPath) -> Iterator[Breach]:
        """A fault's condition must have been measured on every kernel that it strikes."""
        measured = [(index, fault) for index, fault in faults if fault.condition is not None]
        known = {
            kernel.name: self._known_conditions(kernel)
            for kernel in pool.kernels
            if any(kernel in _struck(fault.target, pool) for _, fault in measured)
        }
        for index, fault in measured:
            for kernel in _struck(fault.target, pool):
                if known[kernel.name] and fault.condition not in known[kernel.name]:
                    yield Breach(
                        path=(*place, *index, "condition"),
                        expected=f"a condition measured on {kernel.name}: {', '.join(known[kernel.name])}",
                        actual=repr(fault.condition),
                        next_step="name one of these, or profile the kernel at this dose",
                    )

    def _known_conditions(self, kernel: PoolKernel) -> list[str]:
        """Conditions of the kernel's profile; none if it cannot be read, which is reported for the pool."""
        try:
            profile = self._load(KernelProfile, kernel.profile)
        except DocumentError:
            return []
        return [condition.name for condition in profile.spec.conditions]


def _of_faults(faults: Faults, pool: PoolSpec | None, horizon_s: float | None = None) -> Iterator[Breach]:
    for index, fault in faults:
        yield from fault_breaches(fault, index, pool, horizon_s)


def _added(place: KeyPath, alone: Iterable[Breach], within: Iterable[Breach]) -> Iterator[Breach]:
    """Breaches below ``place`` that are found only with the pool; the pool's own are reported there."""
    told = list(alone)
    yield from prefixed(place, (b for b in within if b not in told and b.path[:1] != ("pool",)))


def _struck(target: FaultTarget, pool: PoolSpec) -> list[PoolKernel]:
    """Kernels with a replica that the fault can hit."""
    named = {target.kernel, *(target.kernels or ())} - {None}
    kernels = [kernel for kernel in pool.kernels if not named or kernel.name in named]
    if target.zone is None:
        return kernels
    return [kernel for kernel in kernels if target.zone in (kernel.zone, *(kernel.zones or ()))]


def _unknown_slices(spec: ScenarioSpec, contract: KernelContract) -> Iterator[Breach]:
    known = [slice_.name for slice_ in contract.spec.slices]
    for index, part in enumerate(spec.workload.slice_mix):
        if part.slice not in known:
            yield Breach(
                path=("spec", "workload", "slice_mix", index, "slice"),
                expected=f"a slice of {contract.metadata.name}: {', '.join(known)}",
                actual=repr(part.slice),
                next_step="correct the name, or add the slice to the contract",
            )


def first_problem_breach(error: DocumentError, place: KeyPath) -> Iterator[Breach]:
    """The first problem of the file that ``place`` refers to, and how many more there are."""
    first = error.problems[0]
    where = f"{first.file}:{first.line}" if first.line else first.file
    dots = f" {first.path}" if first.path else ""
    more = len(error.problems) - 1
    actual = f"{where}{dots} with {first.actual}" + (f" and {more} more problems" if more else "")
    yield Breach(path=place, expected=f"{first.expected} there", actual=actual, next_step=first.next_step)
