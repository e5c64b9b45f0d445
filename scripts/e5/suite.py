"""From a suite document to the scenarios that E5 runs, each a complete, checked ``Scenario``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.documents import Scenario, Suite
from contracts.documents.scenario import ScheduledFault
from contracts.documents.suite import SuiteScenario
from contracts.errors import DocumentError, refusal
from contracts.loading.loader import dump_text, load_as, load_text
from contracts.loading.shipped import SHIPPED_SUITE
from contracts.loading.uris import resolve_uri
from faults.catalogue import CATALOGUE, Channel

#: Groups of scenarios that are reported together, in report order.
GROUPS: tuple[str, ...] = ("silent_numeric", "silent_other", "visible", "near_miss", "control")
GROUP_LABELS: dict[str, str] = {
    "silent_numeric": "silent numeric faults",
    "silent_other": "other silent faults",
    "visible": "visible faults",
    "near_miss": "drift that keeps the contract",
    "control": "controls (no fault)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteEntry:
    """One scenario of a run: the complete document as text, so that any process can load it.

    file: base of relative URIs in ``text``.
    """

    name: str
    description: str
    group: str
    text: str
    file: str

    def scenario(self) -> Scenario:
        """The document."""
        document = load_text(self.text, self.file)
        assert isinstance(document, Scenario)
        return document


def load_suite(path: Path | None) -> tuple[Suite, Path]:
    """The suite at ``path`` (default: the shipped one) and its path."""
    file = path if path is not None else resolve_uri(SHIPPED_SUITE, "selvage e5")
    return load_as(Suite, file), file


def expand_suite(suite: Suite, file: Path, trace: Path | None = None) -> tuple[SuiteEntry, ...]:
    """Every scenario of ``suite``, with ``trace`` as its arrivals if given.

    Raises:
        DocumentError: a scenario without ``uri`` in a suite without ``base``, an unknown name
            in the sweep, or an override that gives no valid scenario.

    """
    _refuse_unknown(suite, file)
    return tuple(_entry(suite, row, file, trace) for row in suite.spec.scenarios)


def _refuse_unknown(suite: Suite, file: Path) -> None:
    unknown = sorted(set(suite.spec.sweep_scenarios) - {row.name for row in suite.spec.scenarios})
    if unknown:
        raise _problem(
            file, "spec.sweep_scenarios", "names of scenarios", f"{unknown}", "correct the spelling"
        )


def _entry(suite: Suite, row: SuiteScenario, file: Path, trace: Path | None) -> SuiteEntry:
    uri = row.uri or row.base or suite.spec.base
    if uri is None:
        raise _problem(
            file,
            f"spec.scenarios.{row.name}",
            "a uri, or a base in the suite",
            "neither",
            "add `base:` to spec",
        )
    base_file = resolve_uri(uri, file)
    base = load_as(Scenario, base_file)
    merged = base.model_copy(
        update={
            "metadata": base.metadata.model_copy(update={"name": row.name}),
            "spec": base.spec.model_copy(update=_overrides(base, row, trace)),
        }
    )
    entry = SuiteEntry(
        name=row.name,
        description=row.description or base.spec.description,
        group="control" if row.control else "near_miss" if row.near_miss else group_of(merged.spec.faults),
        text=dump_text(merged),
        file=str(base_file),
    )
    if row.control and merged.spec.faults:
        raise _problem(
            file, f"spec.scenarios.{row.name}", "no faults in a control", "faults", "drop `control`"
        )
    entry.scenario()
    return entry


def _overrides(base: Scenario, row: SuiteScenario, trace: Path | None) -> dict[str, Any]:
    spec = base.spec
    rate_rps = row.rate_rps or spec.workload.rate_rps * row.rate_factor
    workload: dict[str, Any] = {"rate_rps": rate_rps}
    if trace is not None:
        workload |= {"arrivals": "trace", "trace_uri": str(trace.resolve())}
        workload |= {"gamma": None, "diurnal": None, "surge": None}
    loss = row.scrape_loss_ratio
    seen = spec.telemetry
    return {
        "workload": spec.workload.model_copy(update=workload),
        "telemetry": seen if loss is None else seen.model_copy(update={"scrape_loss_ratio": loss}),
        "faults": (*spec.faults, *row.faults),
        "changes": (*spec.changes, *row.changes),
    }


def group_of(faults: Iterable[ScheduledFault]) -> str:
    """Group by faults: one visible fault makes a scenario visible, then numeric, then other silent."""
    kinds = [CATALOGUE[fault.kind] for fault in faults]
    if not kinds:
        return "control"
    if any(not kind.silent for kind in kinds):
        return "visible"
    return "silent_numeric" if any(k.channel is Channel.NUMERIC for k in kinds) else "silent_other"


def _problem(file: Path, path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(file, expected, actual, next_step, path=path)
