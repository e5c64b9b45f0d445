"""The shipped contract for generations, with the clause on users' own answers of docs/live.md."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from contracts.compiled.build import compile_contract
from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelContract
from contracts.loading.loader import load_text
from contracts.metrics import GENERATION_COLUMNS, PASSIVE_COLUMNS
from contracts.telemetry import FleetTelemetry, ProbeSamples, SampleRates
from live.run.sampled_answers import USERS_NUMBER
from scripts.studies.alarms import ProbeFleet
from tests.support.fleets.builders import quiet_telemetry
from tests.support.paths import LIBRARY, ROOT

CLAUSE = "S-surprise"
#: Two replicas of one kernel.
LAYOUT = FleetLayout(
    kernels=("half",),
    slices=("code", "prose"),
    replicas=("half-0", "half-1"),
    replica_kernel=np.zeros(2, dtype=np.int64),
    probe_metrics=(
        "kl_mean@top_k",
        "tv_mean@top_k",
        "top1_flip@top_k",
        *GENERATION_COLUMNS,
        *PASSIVE_COLUMNS,
    ),
    known_good=0,
)


@lru_cache(maxsize=1)
def passive_text() -> str:
    """The contract as YAML; the clause stands on docs/live.md."""
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    block = next(part for part in page.split("```yaml\n")[1:] if f"id: {CLAUSE}" in part)
    shipped = (LIBRARY / "serving-generation.yaml").read_text(encoding="utf-8")
    return shipped.replace("  escalation:\n", block.split("```")[0] + "  escalation:\n", 1)


def passive_contract() -> KernelContract:
    """The contract as a document."""
    document = load_text(passive_text(), "passive.yaml")
    assert isinstance(document, KernelContract)
    return document


@lru_cache(maxsize=1)
def passive_fleet() -> ProbeFleet:
    """The fleet under it, probed once a second."""
    rates = SampleRates(probes_per_s=1.0, scrape_interval_s=1.0)
    return ProbeFleet(layout=LAYOUT, contract=compile_contract(passive_contract(), LAYOUT), rates=rates)


def answers_seen(now_s: float, outside: int) -> FleetTelemetry:
    """An idle fleet with one answer of a user by each replica on the first slice."""
    values = np.full((1, 2, len(LAYOUT.probe_metrics)), np.nan)
    values[0, :, LAYOUT.probe_metrics.index("surprise_outside")] = outside
    found = ProbeSamples.of_results(
        replica=np.array([[0, 1]]),
        slice=np.zeros((1, 2), dtype=np.int64),
        prompt=np.full((1, 2), USERS_NUMBER),
        sampled_at_ms=np.full((1, 2), now_s * 1000.0),
        values=values,
        valid=np.ones((1, 2), dtype=np.bool_),
    )
    return replace(quiet_telemetry(LAYOUT, now_s), probes=found)
