"""Evidence and time until visible faults are acted on, with and without the evidence of clocks and probes:
``bench evidence``.

Every scenario of ``e5-evidence.yaml`` (fault kinds and doses, and quiet fleets up to near saturation) is
driven by the policy ``sequential`` twice: *new*, as shipped, and *before*, on the shipped contract without
its clause ``step_time_ratio`` and with hangs detected by requests alone. The reference *informed*, which is
given the faults and true capacities, shows what can be had there. Truth is that of the shipped contract
every time. Steps of each kernel take ``exp(STEP_ERROR z)`` times the certified model's, z standard
normal and drawn by seed, so that no ratio is noiseless. Per case and evidence: seconds from the
onset to the first quarantine or move, the probes and scrapes of one replica in that time, and the time to
recovery, medians over seeds; false switches, of controls as well; and the number of seeds whose incident no
policy can end (``contracts.scoring.feasible``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.loading.uris import resolve_uri
from contracts.rng import stream
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident, onset_row
from contracts.scoring.switches import measure_switches
from contracts.telemetry import SampleRates
from controller.options import ControllerSetup
from policies.registry import make_configuration
from scripts.e5.configurations import INFORMED, parse_configuration
from scripts.e5.suite import SuiteEntry, expand_suite, load_suite
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

SUITE = f"{LIBRARY}suites/e5-evidence.yaml"
POLICY, SEED, SEEDS = "sequential", 1, 3
#: Standard deviation of the log of true over certified step time: profiles miss their points by 3 to 12 %.
STEP_ERROR = 0.1
#: The clause that the evidence *before* lacks.
CLAUSE = "R-step-time"


def run() -> dict[str, object]:
    """Flat figures per scenario, evidence and measure."""
    suite, file = load_suite(resolve_uri(SUITE, ""))
    seeds = list(range(SEED, SEED + SEEDS))
    flat: dict[str, object] = {"seed": SEED, "seeds": SEEDS, "step_error": STEP_ERROR, "policy": POLICY}
    with tempfile.TemporaryDirectory() as folder:
        contract = without_clause(Path(folder))
        for entry in expand_suite(suite, file):
            rates = compile_scenario(entry.scenario(), entry.file).setup.rates
            for name, records in episodes(entry, contract, seeds):
                found = figures(records, rates)
                flat |= {f"{entry.name}/{name}/{key}": value for key, value in found.items()}
    return flat


def without_clause(folder: Path) -> Path:
    """The shipped contract without ``CLAUSE`` as a file in ``folder``."""
    document = yaml.safe_load(resolve_uri(SERVING_POOL, "").read_text(encoding="utf-8"))
    clauses = document["spec"]["clauses"]
    document["spec"]["clauses"] = [clause for clause in clauses if clause["id"] != CLAUSE]
    path = folder / "contract.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def episodes(
    entry: SuiteEntry, contract: Path, seeds: list[int]
) -> Iterator[tuple[str, list[EpisodeRecord]]]:
    """Records of every seed with evidence *before*, under ``contract``, and *new*, and of the reference, in
    equal worlds.
    """
    document = entry.scenario()
    world = compile_scenario(document, entry.file)
    other = document.model_copy(update={"spec": document.spec.model_copy(update={"contract": str(contract)})})
    new = make_configuration(POLICY, world.setup)
    before = replace(make_configuration(POLICY, compile_scenario(other, entry.file).setup), hang_timeouts=0)
    true = [_true_world(world, seed) for seed in seeds]
    for name, setup in (("before", before), ("new", new)):
        yield name, [_episode(one, setup, seed) for one, seed in zip(true, seeds, strict=True)]
    if entry.group != "control":
        known = [parse_configuration(INFORMED).setup(one) for one in true]
        yield INFORMED, [_episode(*one) for one in zip(true, known, seeds, strict=True)]


def _true_world(world: CompiledScenario, seed: int) -> CompiledScenario:
    """``world`` with steps that deviate from the certified model."""
    z = stream(seed, "step_error").normal(size=len(world.layout.kernels))
    steps = world.engine.step_model * np.exp(STEP_ERROR * z)[:, None]
    return replace(world, engine=replace(world.engine, step_model=steps))


def _episode(true: CompiledScenario, setup: ControllerSetup, seed: int) -> EpisodeRecord:
    (record,) = run_episodes(true, ControllerDriver(setup), [seed])
    return record


def figures(records: list[EpisodeRecord], rates: SampleRates) -> dict[str, object]:
    """Medians over seeds of one case; of a control its false switches."""
    switches = sum(measure_switches(record).false_switches for record in records)
    if records[0].incident is None:
        return {"false_switches": switches}
    action_s = float(np.median([_action_s(record) for record in records]))
    found = [one for one in map(measure_incident, records) if one is not None]
    shown: dict[str, object] = {
        "action_s": action_s,
        "probes": int(action_s * rates.probes_per_s),
        "scrapes": int(action_s / rates.scrape_interval_s),
    }
    recovered = sum(one.recovered for one in found)
    mttr_s = float(np.median([one.mttr_s for one in found])) if found else None
    infeasible = sum(one.infeasible for one in found)
    return shown | {
        "mttr_s": mttr_s,
        "recovered": recovered,
        "infeasible": infeasible,
        "false_switches": switches,
    }


def _action_s(record: EpisodeRecord) -> float:
    """Seconds from the onset to the first quarantine or move of weight; to the horizon if there is none."""
    start = onset_row(record)
    moved = np.abs(np.diff(record.table, axis=0)).max(axis=(1, 2)) > 0.0
    gone = (record.quarantined[1:] & ~record.quarantined[:-1]).any(axis=1)
    rows = np.flatnonzero((moved | gone)[start:])
    assert record.incident is not None
    first = start + 1 + int(rows[0]) if rows.size else len(record.table)
    return first * record.tick_s - record.incident.onset_at_s
