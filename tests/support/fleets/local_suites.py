"""A run of E5 on a fleet of this machine, planned and played without servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from contracts.scoring.episode import EpisodeRecord
from faults.drill.outcome import judge
from faults.drill.runner import run_drill
from live.fleet.state import FleetFolder
from scripts.drill.local import LocalRun
from scripts.e5_drills.plan import DrillEpisode
from scripts.e5_drills.results import EpisodeResult
from scripts.e5_local.episodes import result_of
from scripts.e5_local.plan import LocalOptions, LocalSuite, plan_local
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.fleets.drill_runs import NotedLedger, ScriptedTarget
from tests.support.fleets.episodes import broken_record, move_at, step_fault
from tests.support.servers.live_fleets import POOL

HOLD_S = 80.0
SPEC = {
    "description": "one fault on one replica",
    "pool": "test-pool",
    "pool_uri": "pool.yaml",
    "faults": [
        {
            "name": "bad",
            "kind": "requantise",
            "condition": "requantise-w3",
            "live": {"bits": 3},
            "target": {"kernel": "fp16", "replica": 0},
            "onset_s": 20.0,
            "duration_s": 5.0,
        }
    ],
    "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 0.05}],
    "undo": {"verify_probes": 2, "readmit_over_s": 2.0},
    "abort_when": [{"name": "outage", "metric": "failure_rate", "threshold": 0.5}],
    "time_to_live_s": 60.0,
}


def planned(
    place: Path,
    *,
    drills: tuple[str, ...] = (),
    seeds: int = 2,
    policies: tuple[str, ...] = ("fixed", "sequential"),
    meta: str = "",
) -> LocalSuite:
    """A run of ``fixed`` and ``sequential`` on drills of a pool of two slices, three replicas."""
    (place / "pool.yaml").write_text(POOL)
    file = write_yaml(place / "drill.yaml", envelope("FaultDrill", "bits", SPEC))
    return plan_local(
        LocalOptions(
            out=place / "out",
            folder=FleetFolder(path=place / "fleet"),
            policies=policies,
            drills=drills or (str(file),),
            seeds=seeds,
            hold_s=HOLD_S,
            meta=meta,
        )
    )


def record_of(episode: DrillEpisode) -> EpisodeRecord:
    """``fixed`` moves nothing; ``sequential`` leaves ten seconds after the onset."""
    plan = episode.entry.plan
    rows = int(plan.total_s)
    record = replace(broken_record(rows, 20), incident=step_fault(20.0, rows))
    moved = record if episode.configuration.name == "fixed" else move_at(record, 30)
    return replace(moved, policy=episode.configuration.name, seed=episode.seed)


def played(episode: DrillEpisode, *, shows: bool = True) -> EpisodeResult:
    """The episode on a scripted target."""
    plan, target = episode.entry.plan, ScriptedTarget(episode=record_of(episode), shows_after=shows)
    run = run_drill(plan, target, NotedLedger(target.told), lambda _: None)
    return result_of(episode, LocalRun(outcome=judge(plan, run), requests=[]), ("vLLM 0",))
