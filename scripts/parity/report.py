"""The result of a comparison: flat JSON, and Markdown, with misses named in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from contracts.documents.serving_path import ServingPath
from contracts.loading.files import plain
from scripts.parity.calibrating import calibrated
from scripts.parity.capacity import model_capacity, simulated_capacity
from scripts.parity.comparing import ComparedQuantile, compared, lines_of
from scripts.parity.drills import DrillParity, drill_lines
from scripts.parity.recording import ParityRecording

#: Variants of the simulator's serving path: none, timed on an idle server, fitted to a load.
VARIANTS = ("steps alone", "measured", "calibrated")

#: Above this load of the machine, measurements are distorted.
BUSY_RATIO = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityResult:
    """Terms and comparisons of each variant, capacities of each, and drills of both worlds."""

    recording: ParityRecording
    terms: dict[str, ServingPath]
    rows: dict[str, list[ComparedQuantile]]
    capacities: dict[str, dict[str, float]]
    drills: Sequence[DrillParity]

    def misses(self, variant: str) -> int:
        """Judged quantiles that are out of bounds."""
        return sum(one.within is False for one in self.rows[variant])

    def judged(self, variant: str) -> int:
        """Number of judged quantiles."""
        return sum(one.within is not None for one in self.rows[variant])


def judged(recording: ParityRecording, drills: Sequence[DrillParity] = ()) -> ParityResult:
    """Compare ``recording`` with the simulator, by every available variant of the serving path."""
    at = recording.at(recording.calibrate_rps)
    terms = {VARIANTS[0]: ServingPath()}
    if recording.serving is not None:
        terms[VARIANTS[1]] = recording.serving
    terms[VARIANTS[2]] = calibrated(at, recording.step_time, recording.limits)
    live = recording.capacity
    return ParityResult(
        recording=recording,
        terms=terms,
        rows={name: compared(recording, one) for name, one in terms.items()},
        capacities={
            name: {
                "simulated_rps": simulated_capacity(recording, one, live.objectives, live.seconds),
                "model_rps": model_capacity(recording, one, live.objectives),
            }
            for name, one in terms.items()
            if live is not None
        },
        drills=drills,
    )


def content_of(result: ParityResult) -> dict[str, Any]:
    """Plain values."""
    recording = result.recording
    content = {
        "kernel": recording.kernel,
        "hardware": recording.hardware,
        "versions": {one.name: one.version for one in recording.versions},
        "calibrate_rps": recording.calibrate_rps,
        "rates_rps": recording.rates_rps,
        "quiet_enough": all((run.busy_ratio or 0.0) <= BUSY_RATIO for run in recording.runs),
        "busy_ratio": [run.busy_ratio for run in recording.runs],
        "unanswered": [run.unanswered for run in recording.runs],
        "requests": [len(run.at_s) for run in recording.runs],
        "terms": {name: one.model_dump(exclude={"points"}) for name, one in result.terms.items()},
        "misses": {name: result.misses(name) for name in result.terms},
        "judged": {name: result.judged(name) for name in result.terms},
        "rows": {name: [asdict(one) for one in rows] for name, rows in result.rows.items()},
        "capacity": None if recording.capacity is None else recording.capacity.model_dump(),
        "capacities": result.capacities,
        "drills": [asdict(one) | {"ratio": one.ratio} for one in result.drills],
    }
    shown: dict[str, Any] = plain(content)
    return shown


def lines(result: ParityResult) -> list[str]:
    """Markdown of the whole result."""
    found: list[str] = []
    for name, terms in result.terms.items():
        found += [f"**{name}** ({_terms(terms)}): {result.misses(name)} of {result.judged(name)} missed", ""]
    found += [*lines_of(result.rows[VARIANTS[2]]), ""]
    shares = [run.busy_ratio for run in result.recording.runs if run.busy_ratio is not None]
    unanswered = sum(run.unanswered for run in result.recording.runs)
    busy = f"the machine was busy to {100.0 * max(shares):.0f} % at most" if shares else "its load is unknown"
    found += [f"{unanswered} requests were not answered to their end; {busy}."]
    if shares and max(shares) > BUSY_RATIO:
        found += [
            f"**This is no comparison**: above {100.0 * BUSY_RATIO:.0f} % every run measures the machine, and"
            " the bounds are as wide as its noise. Free cores, or lower --rates."
        ]
    found += ["", *_capacity_lines(result)] if result.recording.capacity else []
    found += ["", *drill_lines(result.drills)] if result.drills else []
    return found


def _capacity_lines(result: ParityResult) -> list[str]:
    live = result.recording.capacity
    if live is None:
        return []
    asked = live.objectives
    told = [
        f"Capacity: {100.0 * asked.kept_ratio:g} % of the requests within {asked.first_ms:g} ms to the first"
        f" token, {asked.gap_ms:g} ms between tokens and {asked.whole_ms:g} ms in all, over"
        f" {live.seconds:g} s: live {live.carried_rps:.2f} requests/s."
    ]
    for name, figures in result.capacities.items():
        simulated, model = figures["simulated_rps"], figures["model_rps"]
        told.append(
            f"{name}: simulated {simulated:.2f} ({_off(simulated, live.carried_rps)}), by the controller's"
            f" closed form {model:.2f} ({_off(model, live.carried_rps)})."
        )
    return told


def _off(value: float, live: float) -> str:
    return f"{100.0 * (value / live - 1.0):+.0f} %" if live > 0.0 else "live carried none"


def _terms(path: ServingPath) -> str:
    """The three terms with their half-widths."""
    names = ("request", "step", "token")
    values = [getattr(path, f"{name}_overhead_ms") for name in names]
    if path.half_widths is None:
        return ", ".join(f"{value:.2g} ms a {name}" for name, value in zip(names, values, strict=True))
    widths = [getattr(path.half_widths, f"{name}_overhead_ms") for name in names]
    return ", ".join(f"{v:.2f} ± {w:.2f} ms a {n}" for n, v, w in zip(names, values, widths, strict=True))
