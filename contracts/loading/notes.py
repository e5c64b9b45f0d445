"""Notes on a valid document: promises that no code enforces yet, or that no measurement supports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from contracts.documents import ContractSpec, Document, FaultDrill, KernelContract, KernelPool
from contracts.documents.pool import PoolSpec
from contracts.errors import KeyPath
from contracts.loading.profiles import measured_notes
from contracts.loading.yaml_positions import dotted, parse

NOT_ENFORCED = "not enforced yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One remark on a place of a document."""

    file: str
    line: int
    path: str  # dotted
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.path}: {self.text}"


def notes(document: Document, text: str, file: str) -> list[Note]:
    """Remarks on ``document``, read from ``text`` in ``file``; none where every promise is kept."""
    written = parse(text, file)
    unkept = ((path, f"{NOT_ENFORCED}: {why}") for path, why in _not_enforced(document))
    return [
        Note(file=file, line=written.line_of(path), path=dotted(path), text=told)
        for path, told in (*unkept, *_explained(document), *measured_notes(document, file))
    ]


def _not_enforced(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """Place and reason of each promise that no code enforces."""
    match document:
        case KernelContract(spec=spec):
            yield from _of_contract(spec)
        case FaultDrill(spec=spec) if not spec.undo.reset_caches:
            why = "an undo always flushes caches: a poisoned one would outlive its fault"
            yield ("spec", "undo", "reset_caches"), why
        case _:
            pass


def _explained(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """What a declared headroom means in load."""
    match document:
        case KernelPool(spec=spec) if spec.known_good_headroom_ratio is not None:
            yield ("spec", "known_good_headroom_ratio"), _headroom(spec, spec.known_good_headroom_ratio)
        case _:
            pass


def _headroom(spec: PoolSpec, ratio: float) -> str:
    """What the known-good kernel, of which a rule wants exactly one, must be able to take."""
    kernel = next(one for one in spec.kernels if one.role == "known_good")
    if kernel.capacity_rps is None:
        return (
            f"kernel {kernel.name} must be able to take {ratio:.0%} of the usual load; "
            "state its capacity_rps to read here up to what load that is"
        )
    carried_rps = kernel.replicas * kernel.capacity_rps
    return (
        f"kernel {kernel.name} carries {carried_rps:g} requests/s with all {kernel.replicas} replicas, "
        f"which is {ratio:.0%} of a usual load of {carried_rps / ratio:g} requests/s; "
        "above that the operator warns, and decides nothing by it"
    )


def _of_contract(spec: ContractSpec) -> Iterator[tuple[KeyPath, str]]:
    yield ("spec", "clauses", 0, "remediation"), "remediation is text for people on every clause"
    if spec.escalation.refinements:
        path: KeyPath = ("spec", "escalation", "refinements")
        yield path, "the level alone decides what follows, whatever the family"
    if "on_controller_loss" in spec.model_fields_set:
        yield (
            ("spec", "on_controller_loss"),
            "without a controller the last routes stay in force, as with hold",
        )
