"""Whether moving traffic makes a fault worse: ``selvage bench amplification``.

Every scenario of E5 in which a kernel or replica breaks its contract, with sticky sessions, under
every shielded policy as it stands, against the same policy on the scenario without its faults, seed by seed.
``amplification_max_POLICY`` is the largest surplus that any minute after detection shows
(``contracts.scoring.measures.amplification``: 0 or less is none), and ``amplified_POLICY`` how many of the
``pairs_POLICY`` show one of more than one attempt in a hundred. ``forbidden_dispatched_POLICY`` counts
attempts sent to cells that the plan in force forbade, over all runs. One BLAS thread, a few minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from contracts.documents import Scenario
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.measures import amplification, forbidden_dispatched
from policies.kinds import POLICIES
from scripts.e5.configurations import Configuration
from scripts.e5.suite import SuiteEntry, expand_suite, load_suite
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario

SEEDS = (1, 2)
CONFIGURATIONS = tuple(sorted(name for name, policy in POLICIES.items() if policy.shield))
#: A surplus below this share of a minute's attempts is random.
NOTICEABLE = 0.01
GROUPS = ("silent_numeric", "silent_other", "visible")


def run() -> dict[str, object]:
    """Flat figures by configuration."""
    entries = [entry for entry in expand_suite(*load_suite(None)) if entry.group in GROUPS]
    figures: dict[str, object] = {"seeds": len(SEEDS), "scenarios": len(entries)}
    for configuration in CONFIGURATIONS:
        figures |= _of_configuration(configuration, entries)
    return figures


def _of_configuration(configuration: str, entries: list[SuiteEntry]) -> dict[str, object]:
    surplus: dict[str, float] = {}
    sent, pairs = 0.0, 0
    for entry in entries:
        for record, calm in _pairs(configuration, entry.scenario(), entry.file):
            sent += forbidden_dispatched(record) + forbidden_dispatched(calm)
            found = amplification(record, calm)
            pairs += math.isfinite(found)
            if math.isfinite(found):
                surplus[f"{entry.name}/{record.seed}"] = found
    worst = max(surplus, key=lambda name: surplus[name])
    return {
        f"amplification_max_{configuration}": surplus[worst],
        f"amplification_worst_{configuration}": worst,
        f"amplified_{configuration}": sum(value > NOTICEABLE for value in surplus.values()),
        f"pairs_{configuration}": pairs,
        f"forbidden_dispatched_{configuration}": sent,
    }


def _pairs(
    configuration: str, scenario: Scenario, file: str
) -> Iterator[tuple[EpisodeRecord, EpisodeRecord]]:
    """Records with and without the faults of ``scenario``, seed by seed."""
    without = scenario.model_copy(update={"spec": scenario.spec.model_copy(update={"faults": ()})})
    return zip(_records(configuration, scenario, file), _records(configuration, without, file), strict=True)


def _records(configuration: str, scenario: Scenario, file: str) -> list[EpisodeRecord]:
    compiled = compile_scenario(scenario, file)
    return run_episodes(
        compiled, Configuration(name=configuration, spec=configuration).driver(compiled), SEEDS
    )
