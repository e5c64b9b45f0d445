"""Readers of users' files: documents, traces, arrays, logs, prompts, certificates, registers, networks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml

from contracts.assess.gate import parse_waiver
from contracts.assess.observation_log import load_log
from contracts.assess.register import read_register
from contracts.assess.samples import load_samples
from contracts.documents import MetaContract
from contracts.loading.loader import load_as, load_document, read_text
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.regular_files import ONNX_BYTES, TEXT_BYTES, read_regular
from contracts.workload.azure_trace import load_trace
from live.errors import LiveError
from live.fleet.state import FleetFolder, read_state
from live.heal.readmission import replicas_returning
from live.measure.prompts import load_prompts
from policies.certify.admission import load_certificate, refuse_unless_passing
from policies.certify.certificate import judge_clauses
from policies.certify.evidence import parse_evidence
from policies.certify.signature import public_key
from policies.learned.runner import ScoreRunner
from policies.offline.transitions import load_transitions
from scripts.cli.run_reports.decision_log import read_decisions
from scripts.e5.scores.parts import read_episodes
from scripts.e5.suite import expand_suite, load_suite
from scripts.parity.drills import drill_parity
from scripts.parity.recording import load_recording
from tests.hostile import mutations
from tests.hostile.originals import fleet_folder, register, samples, small_episodes, transitions
from tests.hostile.readers import Reader, written
from tests.support.documents.drills import DRILL
from tests.support.fleets.parity_recordings import recording
from tests.support.paths import ROOT

LIBRARY = ROOT / "contracts" / "library"
META = load_as(MetaContract, resolve_uri(SHIPPED_META, "tests"))


def certificate(path: Path) -> None:
    """Read and judge a certificate."""
    refuse_unless_passing(load_certificate(read_text(path), str(path)), META, str(path))


def network(path: Path) -> None:
    """Read a network and run it once."""
    ScoreRunner(read_regular(path, ONNX_BYTES), str(path))


def episodes(path: Path) -> None:
    """Judge the episodes of a certificate again, whatever their hash."""
    judge_clauses(META, parse_evidence(read_regular(path, TEXT_BYTES), path))


def suite(path: Path) -> None:
    """Expand a certification suite into its scenarios."""
    expand_suite(*load_suite(path))


def fleet_state(path: Path) -> None:
    """Read the state of a live fleet."""
    folder = path.parent / "fleet"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "fleet.json")
    if read_state(FleetFolder(path=folder)) is None:
        raise LiveError("no file")


def drill_result(path: Path) -> None:
    """Read a drill's result."""
    folder = path.parent / "drilled"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "drill.json")
    drill_parity([folder])


def parity_recording(folder: Path) -> list[Path]:
    """A recording of both worlds."""
    place = folder / "recording.json"
    place.write_text(recording((3.0,), seconds=10.0).model_dump_json())
    return [place]


def shipped(*names: str) -> Callable[[Path], list[Path]]:
    """Files of the library."""
    return lambda _: [LIBRARY / name for name in names]


PART = """[{"policy": "fixed", "scenario": "surge", "seed": 3, "incident": {"mttr_s": 9.5},
"quality": {"preservation": 0.99, "loss": null}, "service": {"failed_ratio": 0.0, "probe_tokens": 7.0},
"switches": {"false_switches": 1.0, "false_switches_in_rotation": 0.0, "slice_months": 0.5}}]"""
LOG = """{"slice": "code", "column": "kl_mean@full_vocab", "value": 0.0012}
{"slice": "code", "column": "failed", "value": 0}
{"slice": "prose", "judge": "refusal", "reference": "Sure.", "candidate": "I can't do that."}
{"slice": "json", "judge": "json", "reference": "{}", "candidate": "{"}
{"slice": "prose", "judge": "calibration", "reference": [0.9, 1], "candidate": [0.8, 0]}
"""
PROMPTS = """{"id": 0, "slice": "code", "split": "probe", "document": "a@1", "token_ids": [0, 1]}
{"slice": "prose", "text": "once"}
{"slice": "prose", "token_ids": [3, 4]}
"""
RESULT = json.dumps({"drill": "crash", "target": "sim", "verdict": "passed", "measures": {"mttr_s": 1.0}})
DECISION = json.dumps(
    {
        "tick": 1,
        "now_s": 1.0,
        "plan_version": 2,
        "policy_id": "fixed",
        "seed": 0,
        "moves": [
            {"slice": "a", "target": "b", "before": 1.0, "after": 0.5, "proposed": 0.5, "because": ["N"]}
        ],
        "quarantined": [{"replica": "b-0", "reason": "departs", "new": True}],
        "evidence": [
            {"kernel": "b", "slice": "a", "clause_id": "N", "observations": 3, "estimate": 0.1, "limit": None}
        ],
        "readings": [{"metric": "shed_ratio", "value": 0.1, "limit": 0.2}],
    }
)

PUBLIC_PEM = (
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"
    "-----END PUBLIC KEY-----\n"
)
GIVEN: dict[str, Reader] = {
    "documents": Reader(
        read=load_document,
        originals=shipped(
            "serving-pool.yaml",
            "meta-contract.yaml",
            "route-policy.yaml",
            "policies/routing.yaml",
            "scenarios/silent-requantise.yaml",
            "suites/certify.yaml",
            "suites/e5-pool.yaml",
        ),
        kinds=mutations.TEXT,
    ),
    "traces": Reader(
        read=load_trace,
        originals=lambda _: [ROOT / "tests" / "data" / "azure_trace_synthetic.csv"],
        kinds=(*mutations.BYTES, mutations.lines),
    ),
    "samples": Reader(read=load_samples, originals=samples, kinds=mutations.ARCHIVE),
    "transitions": Reader(read=load_transitions, originals=transitions, kinds=mutations.ARCHIVE),
    "logs": Reader(read=load_log, originals=written("log.jsonl", LOG), kinds=mutations.JSON_LINES),
    "prompts": Reader(read=load_prompts, originals=written("p.jsonl", PROMPTS), kinds=mutations.JSON_LINES),
    "decision logs": Reader(
        read=read_decisions,
        originals=written("d.jsonl", f"{DECISION}\n{DECISION}\n"),
        kinds=mutations.JSON_LINES,
    ),
    "replicas on their way back": Reader(
        read=replicas_returning,
        originals=written("healing.json", '["fp16-0", "fp16-1"]'),
        kinds=mutations.JSON,
    ),
    "certificates": Reader(
        read=certificate, originals=shipped("policies/hysteresis-certificate.json"), kinds=mutations.JSON
    ),
    "registers": Reader(read=read_register, originals=register, kinds=mutations.JSON_LINES),
    "fault drills": Reader(
        read=load_document, originals=written("drill.yaml", yaml.safe_dump(DRILL)), kinds=mutations.TEXT
    ),
    "certification suites": Reader(
        read=suite,
        originals=shipped("suites/certify.yaml", "suites/certify-quiet.yaml"),
        kinds=mutations.TEXT,
    ),
    "episodes": Reader(read=episodes, originals=small_episodes, kinds=mutations.JSON),
    "E5's parts": Reader(read=read_episodes, originals=written("part.json", PART), kinds=mutations.JSON),
    "fleet states": Reader(read=fleet_state, originals=fleet_folder, kinds=mutations.JSON),
    "parity recordings": Reader(read=load_recording, originals=parity_recording, kinds=mutations.JSON),
    "drills of both worlds": Reader(
        read=drill_result, originals=written("drill.json", RESULT), kinds=mutations.JSON
    ),
    "waivers": Reader(
        read=lambda path: parse_waiver(path.read_bytes().decode(errors="replace")),
        originals=written("waiver", "O-trace/code=none"),
        kinds=(*mutations.BYTES, mutations.lines),
    ),
    "public keys": Reader(
        read=lambda path: public_key(str(path)),
        originals=written("key.pem", PUBLIC_PEM),
        kinds=(*mutations.BYTES, mutations.lines),
    ),
    "networks": Reader(read=network, originals=shipped("policies/routing.onnx"), kinds=mutations.GRAPH),
}
