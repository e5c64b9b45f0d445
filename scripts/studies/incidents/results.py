"""Result of a part of a replay: kept as a file when finished, and read by a run that resumes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from contracts.errors import DocumentError
from contracts.loading.files import canonical_sha256, json_text
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES, read_regular
from scripts.output import ready_folder, write_whole
from scripts.studies.incidents.plan import CONTROL, WARM_S, IncidentPart, noise_range_text

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentResult:
    """One part as it went. by: the first clause in alarm, or "no answer" ("": nothing); tokens: of all probes
    until then; prefill, health: whether prefill probes alone and ``/health`` had seen it by the end; struck:
    the injector says that it happened; load: running processes of the machine, mean of a minute; void: why it
    says nothing ("": it does).
    """

    name: str
    seed: int
    limit_s: float
    noise: str
    by: str
    after_s: float | None
    tokens: int
    prefill: bool
    health: bool
    struck: bool
    false_alarm: str = ""
    spent_s: float | None = None
    load: float | None = None
    void: str = ""

    @property
    def verdict(self) -> str:
        """The verdict as a word; a fault that never struck proves nothing."""
        if self.void:
            return "void"
        if self.name == CONTROL:
            return f"false alarm: {self.by}" if self.by else "no alarm"
        if self.by:
            return "caught"
        return "missed" if self.struck else "never struck"


RESULTS = TypeAdapter(tuple[IncidentResult, ...])
_RESULT = TypeAdapter(IncidentResult)


class KeptParts:
    """Finished parts in ``out / "parts"``, each with the hash of its inputs; others are run again."""

    def __init__(self, out: Path, *facts: object) -> None:
        self._folder, self._facts = out / "parts", facts

    def load(self, part: IncidentPart) -> IncidentResult | None:
        """The result of ``part`` under the same facts; None if it must be run."""
        with suppress(DocumentError, *MALFORMED):
            kept = json_of(read_regular(self._file(part), TEXT_BYTES))
            if kept["key"] == self._key(part):
                return _RESULT.validate_python(kept["result"])
        return None

    def save(self, part: IncidentPart, result: IncidentResult) -> None:
        """Keep ``result``."""
        ready_folder(self._folder)
        kept = {"key": self._key(part), "drawn": part.drawn, "result": asdict(result)}
        write_whole(self._file(part), json_text(kept, indent=1))

    def _file(self, part: IncidentPart) -> Path:
        return self._folder / f"{part.place}.json"

    def _key(self, part: IncidentPart) -> str:
        facts = [_FORMAT, part.name, part.seed, part.drawn, part.limit_s, WARM_S, noise_range_text()]
        return canonical_sha256([*facts, *self._facts])


def read_results(folder: Path) -> tuple[IncidentResult, ...]:
    """Every finished part in ``folder``, whatever code it ran on; an error for another file."""
    files = sorted((folder / "parts").glob("*.json"))
    found = (json_of(read_regular(file, TEXT_BYTES)) for file in files)
    return tuple(_RESULT.validate_python(one["result"]) for one in found)


def merged(old: Iterable[IncidentResult], new: Iterable[IncidentResult]) -> tuple[IncidentResult, ...]:
    """Both, with parts of ``new`` in place of the same parts of ``old``; in a fixed order."""
    found = {(one.noise, one.limit_s, one.seed, one.name): one for one in (*old, *new)}
    return tuple(found.values())


def misses(results: Iterable[IncidentResult]) -> dict[int, list[str]]:
    """Undetected classes, by seed; a seed without one has an empty list."""
    found: dict[int, list[str]] = {}
    for one in results:
        if one.name != CONTROL:
            found.setdefault(one.seed, []).extend([one.name] if one.verdict == "missed" else [])
    return found


def figures_of(results: Iterable[IncidentResult]) -> dict[str, Any]:
    """Flat figures of every part, then counts and the misses of each seed."""
    flat: dict[str, Any] = {}
    told = tuple(results)
    for one in told:
        plain = asdict(one) | {"verdict": one.verdict}
        flat |= {f"{one.name}.{one.seed}.{key}": plain[key] for key in _SHOWN}
    replayed = [one for one in told if one.name != CONTROL]
    flat |= {f"missed.{seed}": ",".join(names) for seed, names in misses(told).items()}
    for verdict in ("caught", "missed", "never struck"):
        flat[verdict.replace(" ", "_")] = sum(one.verdict == verdict for one in replayed)
    spent = [one.spent_s for one in told if one.spent_s is not None]
    return flat | {"replayed": len(replayed), "s_per_part": sum(spent) / len(spent) if spent else None}


_SHOWN = (
    "verdict",
    "by",
    "after_s",
    "tokens",
    "prefill",
    "health",
    "struck",
    "false_alarm",
    "spent_s",
    "load",
)
