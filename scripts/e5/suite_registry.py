"""Fixed suites by hash, and their overlap with training: registered before anything is trained.

``python -m scripts.e5.suite_registry`` writes the registry anew; a test compares it with the files, so that a
suite cannot change unnoticed after policies were chosen. ``overlap`` tells which faults of a suite belong to
families that training draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from contracts.documents import KernelPool
from contracts.loading.files import sha256_of
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from scripts.e5.suite import SuiteEntry, expand_suite, load_suite
from scripts.output import write_json
from simulator.env.space import EpisodeSpace, family_of, is_held_out

SUITES = ("e5-validation", "e5-heldout", "e5-heldout-2", "e5-heldout-3", "e5-heldout-4", "e5-heldout-5")
_FOLDER = f"{LIBRARY}suites/"
REGISTRY = _FOLDER + "registry.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One fault of a suite. held_out: no training episode belongs to its family."""

    scenario: str
    name: str
    held_out: bool


def suite_path(name: str) -> Path:
    """File of the shipped suite ``name``."""
    return resolve_uri(f"{_FOLDER}{name}.yaml", "selvage e5")


def entries(name: str) -> tuple[SuiteEntry, ...]:
    """Scenarios of the shipped suite ``name``."""
    suite, file = load_suite(suite_path(name))
    return expand_suite(suite, file)


def files(name: str) -> dict[str, str]:
    """Every file that decides what the suite measures, to its SHA-256: profiles pin their samples."""
    suite = suite_path(name)
    found = {suite}
    for entry in entries(name):
        scenario = entry.scenario().spec
        found |= {Path(entry.file), resolve_uri(scenario.contract, entry.file)}
        if scenario.pool_uri is not None:
            pool = resolve_uri(scenario.pool_uri, entry.file)
            kernels = load_as(KernelPool, pool).spec.kernels
            found |= {pool, *(resolve_uri(kernel.profile, pool) for kernel in kernels)}
    library = suite.parent.parent
    return {
        file.resolve().relative_to(library.resolve()).as_posix(): sha256_of(file) for file in sorted(found)
    }


def registry() -> dict[str, dict[str, str]]:
    """Suite to the hashes of its files."""
    return {name: files(name) for name in SUITES}


def overlap(name: str, space: EpisodeSpace | None = None) -> tuple[Family, ...]:
    """Every fault of the suite with its family, and whether training draws it."""
    drawn = space or EpisodeSpace()
    return tuple(
        Family(
            scenario=entry.name,
            name=family_of(fault),
            held_out=is_held_out(family_of(fault), drawn.held_out_ratio, drawn.reserved),
        )
        for entry in entries(name)
        for fault in entry.scenario().spec.faults
    )


if __name__ == "__main__":
    write_json(resolve_uri(REGISTRY, "selvage e5"), registry(), indent=1)
