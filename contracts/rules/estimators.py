"""Which estimator judges a clause, given what was measured: the one it names, else one that was measured.

Servers return only the most probable tokens, so a contract written for the full vocabulary may be applied to
kernels with ``top_k`` columns only. Such a column is a lower bound of the exact one: a clause it shows broken
is broken, but a clause it shows kept may be broken as well. Reports list the clauses where it was used.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from contracts.documents.contract import Clause, Estimator, KernelContract
from contracts.metrics import metric
from contracts.telemetry import Source

#: Estimators, most informative first.
ESTIMATORS: tuple[Estimator, ...] = ("full_vocab", "top_k", "sampled")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsMeasured:
    """A contract with measured estimators. Clauses are listed by id, in the contract's order."""

    contract: KernelContract
    replaced: tuple[str, ...]
    """Clauses judged by an estimator other than the one they name."""
    unmeasured: tuple[str, ...]
    """Clauses that are not judged: no column of their metric was measured."""

    def notes(self) -> list[str]:
        """Notes for a report; empty if every clause is judged by the estimator it names."""
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
    """``contract`` with each probe-fed clause set to an estimator among the measured ``columns``."""
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
    """Measured column of ``column``, for example ``kl_mean``, with the best estimator; None if none."""
    return next((f"{column}@{one}" for one in ESTIMATORS if f"{column}@{one}" in columns), None)


def _measured(clause: Clause, columns: Set[str]) -> Estimator | None:
    """Measured estimator for the clause, its own first; None if there is none or none is needed."""
    if not _of_probes(clause):
        return None
    spec = metric(clause.metric)
    order = dict.fromkeys([clause.estimator, *ESTIMATORS])
    return next((one for one in order if one in spec.estimators and spec.column(one) in columns), None)


def _of_probes(clause: Clause) -> bool:
    return metric(clause.metric).source == Source.PROBE
