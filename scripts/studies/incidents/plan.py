"""Parts of a replay of incidents: one per class and seed, and a control beside each seed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from contracts.documents.scenario import ScheduledFault
from contracts.errors import DocumentError, refusal
from faults.client.replica import wire_form
from faults.drill.incidents import INCIDENTS, NOISE, FaultPlace, IncidentClass, drawn_fault

COMMAND = "selvage bench incidents"
#: The control part of each seed, without a fault.
CONTROL = "control"
#: Time limit for detecting a fault, and time for observing a control, s.
LIMIT_S, CONTROL_S = 45.0, 60.0
#: Time that the prober runs before a fault, and before the same time in a control; an earlier alarm is false.
WARM_S = 10.0
#: Additional time of a part: users and probes that end, an undo that is verified.
BESIDE_S = 8.0
MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPart:
    """One class with one seed. incident None: the control."""

    incident: IncidentClass | None
    seed: int
    fault: ScheduledFault | None
    limit_s: float

    @property
    def name(self) -> str:
        """Name of its class."""
        return CONTROL if self.incident is None else self.incident.name

    @property
    def place(self) -> str:
        """Its name among all parts, and its file's name."""
        return f"{self.name}.{self.seed}"

    @property
    def drawn(self) -> dict[str, Any]:
        """The fault as it is injected, plain; empty of a control."""
        return {} if self.fault is None else wire_form(self.fault)

    @property
    def expected_s(self) -> float:
        """Approximate longest duration."""
        return WARM_S + self.limit_s + BESIDE_S


def planned(seeds: str, classes: str, limit_s: float, place: FaultPlace) -> tuple[IncidentPart, ...]:
    """The parts of ``seeds`` ("A..B" or one) and ``classes`` (comma-separated; "" for all), seed by seed, so
    that a stopped run has complete seeds. DocumentError for invalid ones.
    """
    chosen = _chosen(classes)
    return tuple(
        part
        for seed in _seeds(seeds)
        for part in (
            IncidentPart(incident=None, seed=seed, fault=None, limit_s=CONTROL_S),
            *(
                IncidentPart(incident=one, seed=seed, fault=drawn_fault(one, place, seed), limit_s=limit_s)
                for one in chosen
            ),
        )
    )


def noise_range_text() -> str:
    """The range of noise from which classes of wrong weights draw."""
    return f"{NOISE[0]:g}..{NOISE[1]:g}"


def _seeds(text: str) -> range:
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", text)
    if found is None:
        raise option_refusal("--seeds", "A..B or one seed", text, "e.g. --seeds 0..9")
    first, last = int(found[1]), int(found[2] or found[1])
    if not first <= last < first + MOST_SEEDS:
        raise option_refusal("--seeds", f"A..B of 1 to {MOST_SEEDS} seeds", text, "e.g. --seeds 0..9")
    return range(first, last + 1)


def _chosen(text: str) -> tuple[IncidentClass, ...]:
    known = {one.name: one for one in INCIDENTS}
    names = list(dict.fromkeys(filter(None, text.split(",")))) or list(known)
    for name in names:
        if name not in known:
            raise option_refusal("--classes", f"some of {', '.join(known)}", name, "separate them by commas")
    return tuple(known[name] for name in names)


def limit_of(text: str) -> float:
    """``text`` as seconds; DocumentError if it is not a valid time."""
    if re.fullmatch(r"\d{1,5}(\.\d*)?", text) is None or not 5.0 <= float(text) <= 3600.0:
        raise option_refusal("--limit-s", "5 to 3600 seconds", text, "e.g. --limit-s 120")
    return float(text)


def option_refusal(option: str, expected: str, actual: str, step: str) -> DocumentError:
    """An error about an option of the command."""
    return refusal(COMMAND, expected, actual, step, path=option)
