"""Which estimator judges a clause, given what was measured: the one it names, else one that was measured.

A server returns only its most probable tokens, so a contract written for the full vocabulary meets kernels
with ``top_k`` columns only. Such a column is a lower bound of the exact one: a clause that it shows broken is
broken, one that it shows kept may not be. Reports state where it was used, with the lists here.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from contracts.documents.contract import Clause, Estimator, KernelContract
from contracts.metrics import metric
from contracts.telemetry import Source

#: Estimators, the most informative first.
ESTIMATORS: tuple[Estimator, ...] = ("full_vocab", "top_k", "sampled")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsMeasured:
    """A contract with the estimators that were measured. Clauses by id, in the contract's order."""

    contract: KernelContract
    replaced: tuple[str, ...]
    """Judged by another estimator than they name."""
    unmeasured: tuple[str, ...]
    """Judged by none: no column of theirs was measured."""

    def notes(self) -> list[str]:
        """What is to be said of it; nothing where every clause is judged as it is written."""
        said: list[str] = []
        if self.replaced:
            by = ", ".join(dict.fromkeys(one.estimator for one in self._of(self.replaced)))
            names = ", ".join(self.replaced)
            said.append(f"judged by {by} in place of the estimator they name, a lower bound: {names}")
        if self.unmeasured:
            said.append(
                f"not judged, because no kernel has their metric measured: {', '.join(self.unmeasured)}"
            )
        return said

    def _of(self, ids: tuple[str, ...]) -> list[Clause]:
        return [one for one in self.contract.spec.clauses if one.id in ids]


def with_measured_estimators(contract: KernelContract, columns: Set[str]) -> AsMeasured:
    """``contract`` with the estimator of every clause that probes judge among the measured ``columns``."""
    found = [_measured(clause, columns) for clause in contract.spec.clauses]
    clauses = tuple(
        clause if estimator is None else clause.model_copy(update={"estimator": estimator})
        for clause, estimator in zip(contract.spec.clauses, found, strict=True)
    )
    pairs = list(zip(contract.spec.clauses, found, strict=True))
    changed = clauses != contract.spec.clauses
    spec = contract.spec.model_copy(update={"clauses": clauses}) if changed else contract.spec
    return AsMeasured(
        contract=contract.model_copy(update={"spec": spec}) if changed else contract,
        replaced=tuple(clause.id for clause, found in pairs if found not in (None, clause.estimator)),
        unmeasured=tuple(clause.id for clause, found in pairs if found is None and _of_probes(clause)),
    )


def first_measured(column: str, columns: Set[str]) -> str | None:
    """The column of the most telling estimator that was measured, e.g. of ``kl_mean``; None for none."""
    return next((f"{column}@{one}" for one in ESTIMATORS if f"{column}@{one}" in columns), None)


def _measured(clause: Clause, columns: Set[str]) -> Estimator | None:
    """Estimator of the clause that was measured, its own first; None for none, or where none is needed."""
    if not _of_probes(clause):
        return None
    spec = metric(clause.metric)
    order = dict.fromkeys([clause.estimator, *ESTIMATORS])
    return next((one for one in order if one in spec.estimators and spec.column(one) in columns), None)


def _of_probes(clause: Clause) -> bool:
    return metric(clause.metric).source == Source.PROBE
