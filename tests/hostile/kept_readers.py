"""Readers of Selvage's own files between two runs: states, journals, caches, results, evidence."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from numpy.random import Generator

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.loading.files import GENESIS, canonical_sha256
from contracts.loading.uris import resolve_uri
from controller.detect.traffic import SHIPPED as CALIBRATION
from controller.detect.traffic import parse_traffic
from controller.initial import initial_state
from controller.state_json import state_to_json
from faults.client.record import UndoRecord, load, save
from faults.drill.ledger import DrillLedger, pending
from faults.inside.lease import Lease, lease_for, read_lease, write_lease
from k8s.operator.admission import Documents
from k8s.operator.records.snapshot import documents_text, read_snapshot, snapshot_config
from k8s.operator.records.snapshot import kept_state as operators_state
from k8s.resources.kinds import document_of
from live.control.chain import read_chain, sealed
from live.control.claim import kept_state
from live.control.journal import read_log
from live.control.replay import replay
from live.run.evidence import EVIDENCE
from live.run.options import setup_again
from policies.train.recipe import load_recipe
from scripts.cli.run_reports.bundling import write_bundle
from scripts.cli.run_reports.explaining import from_log
from scripts.train.exported import read_training
from scripts.train.offline_decisions import episode_of
from tests.hostile import mutations
from tests.hostile.mutations import Mutation
from tests.hostile.readers import Reader, refused_if, written
from tests.live.control.test_journal import SETUP, record
from tests.support.paths import ROOT

LIBRARY = ROOT / "contracts" / "library"
SAMPLE = ROOT / "k8s" / "examples" / "chat"
TRAINING = {"runs": [{"seed": 0, "score": 1.5, "finished": True}], "recipe_sha256": "0" * 64, "baselines": {}}
SEEN = {"format": 1, "replica": "a-0", "at_s": 40.0, "reason": "it departs", "engine": {"version": "1"}}
SEEN |= {
    "failing": {"prompt": 3, "slice": "code", "values": {"kl": 0.5}, "answered": True},
    "probes": [],
    "reference": [{"7": -0.1}],
    "observed": [{"7": -0.9}],
    "note": "",
}


def beside(name: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    """``read`` of a folder that contains the file as ``name``."""

    def of_file(path: Path) -> object:
        folder = path.parent / "kept"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
        return read(folder)

    return of_file


def drill_note(folder: Path) -> None:
    """The note of a running drill."""
    refused_if(pending(folder) is None)


def drill_notes(folder: Path) -> list[Path]:
    """A running drill."""
    DrillLedger(folder=folder, name="crash").open()
    return [folder / "drill.json"]


def undo_records(folder: Path) -> list[Path]:
    """The record of one fault."""
    path = folder / "a.undo.json"
    fault = {"name": "late", "kind": "latency", "dose": 20.0}
    save(path, UndoRecord(url="http://a", token_file="t", fault=fault, written_at_s=1.0, ttl_s=60.0))
    return [path]


def lease(folder: Path) -> None:
    """A lease; an unreadable one has ended."""
    refused_if(read_lease(folder) == Lease())


def leases(folder: Path) -> list[Path]:
    """A lease in force."""
    write_lease(folder, lease_for(60.0, ("late",)))
    return [folder / "lease.json"]


def state(folder: Path) -> None:
    """The state from which a controller continues."""
    found, why = kept_state(folder, SETUP)
    refused_if(found is None, why)


def states(folder: Path) -> list[Path]:
    """The state of a controller after its start."""
    (folder / "state.json").write_text(state_to_json(initial_state(SETUP, 1), SETUP))
    return [folder / "state.json"]


def operator_config(path: Path) -> None:
    """The ConfigMap of a policy as the API server returns it, an object with text values."""
    try:
        config: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        config = None
    kept = read_snapshot(config if isinstance(config, dict) else {})
    refused_if(bool(kept.problem) or operators_state(kept, SETUP)[0] is None, kept.problem)


@cache
def _sample() -> Documents:
    files = {"policy": RoutePolicy, "pool": KernelPool, "contract": KernelContract}
    found: dict[str, Any] = {}
    for name, kind in files.items():
        plain = next(yaml.safe_load_all((SAMPLE / f"{name}.yaml").read_text()))
        found[name] = document_of(plain)
        assert isinstance(found[name], kind)
    return Documents(**found)


def operator_configs(folder: Path) -> list[Path]:
    """The ConfigMap of a controller after its start."""
    owner = {"apiVersion": "selvage.dev/v1alpha1", "kind": "RoutePolicy", "metadata": {"name": "chat"}}
    slots = {"fp8": {"chat-fp8-0": "fp8-0", "chat-fp8-1": "fp8-1"}}
    uids = {"chat-fp8-0": "0c11", "chat-fp8-1": "5fe2"}
    config = snapshot_config(owner, documents_text(_sample()), initial_state(SETUP, 1), SETUP, slots, uids)
    (folder / "config.json").write_text(json.dumps(config))
    return [folder / "config.json"]


def inside_config(content: bytes, rng: Generator) -> bytes:
    """Mutates the compressed state or the documents within a ConfigMap, under a valid or an invalid hash."""
    config = json.loads(content)
    if rng.random() < 0.5:
        text = config["data"]["documents.json"]
        config["data"]["documents.json"] = _text(mutations.json_value(text.encode(), rng))
        return json.dumps(config).encode()
    text = gzip.decompress(base64.b64decode(config["binaryData"]["state.json.gz"]))
    altered = mutations.json_value(text, rng)
    packed = mutations.pick(rng, (gzip.compress, mutations.flip))
    squeezed = gzip.compress(altered) if packed is gzip.compress else mutations.cut(gzip.compress(text), rng)
    config["binaryData"]["state.json.gz"] = base64.b64encode(squeezed).decode()
    config["data"]["state-sha256"] = canonical_sha256(_text(altered))
    return json.dumps(config).encode()


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


@cache
def _journal_lines(place: Path) -> bytes:
    record(place, 12)
    (file,) = place.glob("decisions-*.jsonl")
    return file.read_bytes()


def journals(folder: Path) -> list[Path]:
    """The log of a controller with a dozen decisions."""
    (folder / "journal.jsonl").write_bytes(_journal_lines(folder / "run"))
    return [folder / "journal.jsonl"]


def resealed(content: bytes, rng: Generator) -> bytes:
    """Replaces values in lines of a chained log, and rebuilds the chain over them."""
    changed, last = [], GENESIS
    for line in mutations.json_lines(content, rng).split(b"\n"):
        try:
            row = json.loads(line)
            row.pop("previous", None), row.pop("sha256", None)
            text, last = sealed(row, last)
        except (ValueError, AttributeError, TypeError, RecursionError):
            changed.append(line)
            continue
        changed.append(text.encode(errors="replace"))
    return b"\n".join(changed)


JOURNAL: tuple[Mutation, ...] = (*mutations.BYTES, mutations.lines, resealed, resealed, resealed)


def decided_again(path: Path) -> None:
    """``selvage replay``: the chain, the rows, the documents that they name."""
    rows = read_log(path)
    again = replay(rows, SETUP)
    refused_if(not again.identical, "differs")


def learned_from(path: Path) -> None:
    """``selvage offline train``: every tick in a learned policy's inputs."""
    episode_of(path, 1, read_log(path), SETUP)


def setup_of(path: Path) -> None:
    """The set-up of a start line."""
    rows = read_log(path)
    setup_again(rows[0]["documents"])


def bundle(folder: Path) -> None:
    """An incident as a folder; ``explain`` reads the log first."""
    out = folder / "bundle"
    shutil.rmtree(out, ignore_errors=True)
    write_bundle(folder, out, from_log(folder, 0, 12.0), ["a"])


def evidence_bundle(path: Path) -> None:
    """A bundle with the evidence beside a good log."""
    run = path.parent / "run"
    _journal_lines(run)
    (run / EVIDENCE).mkdir(exist_ok=True)
    shutil.copy(path, run / EVIDENCE / "40-a-0.json")
    bundle(run)


KEPT: dict[str, Reader] = {
    "drill notes": Reader(read=beside("drill.json", drill_note), originals=drill_notes, kinds=mutations.JSON),
    "undo records": Reader(read=load, originals=undo_records, kinds=mutations.JSON),
    "leases of faults": Reader(read=beside("lease.json", lease), originals=leases, kinds=mutations.JSON),
    "controller states": Reader(
        read=beside("controller-state.json", state), originals=states, kinds=mutations.JSON
    ),
    "states of the operator": Reader(
        read=operator_config,
        originals=operator_configs,
        kinds=(*mutations.JSON, inside_config, inside_config, inside_config),
    ),
    "decision journals": Reader(read=read_chain, originals=journals, kinds=JOURNAL),
    "replays": Reader(read=decided_again, originals=journals, kinds=JOURNAL),
    "logs to learn from": Reader(read=learned_from, originals=journals, kinds=JOURNAL),
    "bundles": Reader(read=beside("decisions-000001.jsonl", bundle), originals=journals, kinds=JOURNAL),
    "evidence of incidents": Reader(
        read=evidence_bundle, originals=written("seen.json", json.dumps(SEEN)), kinds=mutations.JSON
    ),
    "recipes": Reader(
        read=load_recipe,
        originals=lambda _: sorted((LIBRARY / "recipes").glob("*.yaml")),
        kinds=mutations.TEXT,
    ),
    "results of training": Reader(
        read=beside("training.json", read_training),
        originals=written("training.json", json.dumps(TRAINING)),
        kinds=mutations.JSON,
    ),
    "calibrations": Reader(
        read=lambda path: parse_traffic(path.read_bytes().decode(errors="replace"), str(path)),
        originals=lambda _: [resolve_uri(CALIBRATION, "tests")],
        kinds=mutations.JSON,
    ),
}
