"""Readers of stored measurements, searches and signatures, of keys, and of objects of a cluster."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import yaml

from contracts.assess.evaluate import evaluate
from contracts.assess.evidence import Build, read_evidence
from contracts.assess.observations import ALL_SPLITS, from_samples
from contracts.assess.samples import load_samples
from contracts.documents import FileRef, KernelContract, KernelProfile
from contracts.documents.profile import HEALTHY
from contracts.loading.loader import load_as
from contracts.loading.untrusted import json_object_of
from contracts.loading.uris import resolve_uri
from faults.client import wire
from k8s.operator.drills import ledger
from k8s.resources.kinds import document_of
from live.fleet.plan import _context
from live.kld.reference import ReferencePlan, reference_for
from live.kld.server import KldServer
from live.measure import reference_store
from live.measure.backend import TopScores
from live.measure.checkpoint import kv_bytes, weights_bytes
from live.measure.endpoint import Endpoint
from live.measure.kernels import VLLM_KERNELS
from live.measure.prompts import Prompt
from live.measure.reference import TopReference
from live.measure.reference_store import _content as reference_content
from live.probe import golden_answers
from live.probe.golden_answers import SAMPLING
from policies.certify.signature import refuse_unsigned, signature_of
from scripts.cli.judging.tables import evaluation_json
from scripts.cli.measuring.request import read_key
from scripts.partial_results import KeptResults
from scripts.train import certify_parts
from scripts.train.pieces import read_score
from simulator.world.kernel_measurements import prompt_tokens
from tests.hostile import mutations
from tests.hostile.answer_readers import answering, client
from tests.hostile.mutations import inside_header
from tests.hostile.readers import Reader, refused_if, written
from tests.support.documents.certification_evidence import sound_evidence
from tests.support.paths import ROOT

PROMPTS = [Prompt(id=0, slice="s", split="probe", document="", token_ids=(1, 2, 3, 4), text="")]
PRIVATE_PEM = (
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n"
)
GOLDEN = {
    "format": 1,
    "sampling": dict(SAMPLING),
    "identity": ["a"],
    "answers": {"k": {"token_ids": [7], "rows": [[[7, -0.1], [8, -2.0]]], "stop_reason": "stop"}},
}
SCORE = dict.fromkeys(
    ("reward", "violating", "false_switches", "quality_loss", "failed", "mttr_s", "recovered", "moved"), 0.5
) | {"objective": 0.25, "episodes": 3}
CONFIG = {"num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
HEADER = {
    "__metadata__": {"format": "pt"},
    "a.q_proj.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [12, 20]},
}
NOTE = {
    "uid": "u",
    "state": "open",
    "struck": [
        {"fault": {"name": "late"}, "replica": "a-0", "pod": "p", "uid": "v", "url": "http://a", "chaos": ""}
    ],
}


def log_rows(positions: int, words: int) -> np.ndarray:
    """float32 [positions, words]: rows of log-probabilities."""
    scores = np.random.default_rng(1).normal(size=(positions, words))
    rows: np.ndarray = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return rows.astype("<f4")


def top_reference(folder: Path) -> list[Path]:
    """A stored answer of a server about three positions."""
    scores = TopScores(
        token_ids=np.array([[1, 2], [3, 4], [5, 6]]), log_probs=np.full((3, 2), -0.7), golden=np.full(3, -0.7)
    )
    found = TopReference(scores=(scores,), sha256="0" * 64, versions=(("torch", "2"),))
    (folder / "reference.npz").write_bytes(reference_content(found))
    return [folder / "reference.npz"]


def own_reference(path: Path) -> None:
    """Rows that the user names."""
    reference_for(ReferencePlan(store=path.parent, model=path.parent, file=path), PROMPTS, lambda: None)


def weights(folder: Path) -> list[Path]:
    """A safetensors file of two tensors."""
    header = json.dumps(HEADER).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(20))
    return [folder / "model.safetensors"]


def in_folder(name: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    """``read`` of a folder that contains only the file, as ``name``."""

    def of_file(path: Path) -> object:
        folder = path.parent / "alone"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / name)
        return read(folder)

    return of_file


def kept(read: Callable[[Any], object]) -> Callable[[Path], object]:
    """``read`` of a kept result; None if the work must be done again."""

    def of_folder(folder: Path) -> None:
        refused_if(read(KeptResults(folder).load("part")) is None)

    return in_folder("part.json", of_folder)


def certified_part(plain: Any) -> object:
    """A part of a certification."""
    return certify_parts._read(plain, cast(Any, SimpleNamespace()))


def certified(folder: Path) -> list[Path]:
    """Two episodes, and one of a fleet without moves."""
    few = next(iter(sound_evidence().still.items()))
    still = [[*few[0], asdict(few[1])]]
    episodes = [asdict(one) for one in sound_evidence().incidents[:2]]
    return written("part.json", json.dumps({"episodes": episodes, "still": still}))(folder)


def signed(path: Path) -> None:
    """A signature of another file."""
    folder = path.parent / "signed"
    folder.mkdir(exist_ok=True)
    (folder / "a.yaml").write_bytes(b"a: 1\n")
    shutil.copyfile(path, folder / "a.yaml.sig")
    _, public = _key(folder.parent)
    refuse_unsigned(folder / "a.yaml", public)


def _key(folder: Path) -> tuple[bytes, str]:
    place = folder / "key.pem"
    if not place.exists():
        place.write_text(PRIVATE_PEM)
    return signature_of(b"a: 1\n", place)


def signature(folder: Path) -> list[Path]:
    """64 bytes."""
    return written("a.sig", _key(folder)[0])(folder)


@cache
def build() -> Build:
    """A shipped profile under a shipped contract."""
    place = resolve_uri("package:contracts/library/profiles/w8a8.yaml", "")
    contract = load_as(KernelContract, ROOT / "contracts" / "library" / "serving-pool.yaml")
    return Build(profile=load_as(KernelProfile, place), profile_file=place, contract=contract)


def evaluation(folder: Path) -> list[Path]:
    """Output of ``evaluate --json`` of that profile."""
    pinned = build().profile.spec.samples
    samples = load_samples(resolve_uri(pinned.uri, build().profile_file), pinned.sha256)
    found = evaluate(build().contract, from_samples(samples, pinned.sha256, HEALTHY, ALL_SPLITS))
    return written("evaluation.json", evaluation_json(found, (), ()))(folder)


def pinned_prompts(path: Path) -> None:
    """Prompts behind their own hash."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    prompt_tokens.cache_clear()
    prompt_tokens(FileRef(uri=str(path), sha256=sha256), str(path.parent / "profile.yaml"), 0)


def numbers(transport: httpx.MockTransport) -> None:
    """Rows of a server's plug-in."""
    with client(transport) as one:
        KldServer(Endpoint(url="http://replica", model="m"), one).rows(PROMPTS[0], 8)


def drill_note(path: Path) -> None:
    """The note in a ConfigMap, an object with text values."""
    text = path.read_bytes().decode(errors="replace")
    cluster: Any = SimpleNamespace(read_config=lambda _: {"data": {"drill.json": text}})
    ledger.read_note(cluster, "a")


def cluster_object(path: Path) -> None:
    """An object whose frame the API server has checked, but not its contents."""
    frame = json.loads((path.parent / "policy.json").read_text())
    try:
        spec = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        refused_if(True, "no JSON")
    document_of(frame | {"spec": spec})


def cluster_objects(folder: Path) -> list[Path]:
    """The specification of a RoutePolicy."""
    sample = ROOT / "k8s" / "examples" / "chat" / "policy.yaml"
    plain = next(yaml.safe_load_all(sample.read_text()))
    (folder / "policy.json").write_text(json.dumps(plain))
    return written("spec.json", json.dumps(plain["spec"]))(folder)


STORED: dict[str, Reader] = {
    "golden answers": Reader(
        read=lambda path: golden_answers._read(path, ("k",), ("a",)),
        originals=written("answers.json", json.dumps(GOLDEN)),
        kinds=mutations.JSON,
    ),
    "reference stores": Reader(
        read=lambda path: reference_store._read(path, PROMPTS),
        originals=top_reference,
        kinds=mutations.ARCHIVE,
    ),
    "references of comparisons": Reader(
        read=own_reference,
        originals=written("rows.f32", log_rows(3, 8).tobytes()),
        kinds=mutations.BYTES,
    ),
    "numbers of comparisons": Reader(
        read=answering(numbers), originals=written("rows", log_rows(3, 8).tobytes()), kinds=mutations.BYTES
    ),
    "headers of weights": Reader(
        read=in_folder("model.safetensors", lambda folder: weights_bytes(folder, VLLM_KERNELS[1])),
        originals=weights,
        kinds=(*mutations.BYTES, inside_header, inside_header, inside_header),
    ),
    "configurations of models": Reader(
        read=in_folder("config.json", lambda folder: (kv_bytes(folder), _context(folder))),
        originals=written("config.json", json.dumps(CONFIG)),
        kinds=mutations.JSON,
    ),
    "kept scores": Reader(
        read=kept(read_score), originals=written("score.json", json.dumps(SCORE)), kinds=mutations.JSON
    ),
    "kept parts of certifications": Reader(
        read=kept(certified_part), originals=certified, kinds=mutations.JSON
    ),
    "signatures": Reader(read=signed, originals=signature, kinds=mutations.BYTES),
    "private keys": Reader(
        read=lambda path: signature_of(b"", path),
        originals=written("key.pem", PRIVATE_PEM),
        kinds=(*mutations.BYTES, mutations.lines),
    ),
    "keys of servers": Reader(
        read=lambda path: read_key("--api-key", "", path),
        originals=written("key", "sk-0123456789\n"),
        kinds=(*mutations.BYTES, mutations.lines),
    ),
    "tokens of drills": Reader(
        read=wire._token, originals=written("token", "abc\n"), kinds=(*mutations.BYTES, mutations.lines)
    ),
    "answers of control endpoints": Reader(
        read=lambda path: refused_if(not json_object_of(path.read_bytes())),
        originals=written("answer.json", '{"injected": true, "engine": {"a": [1]}}'),
        kinds=mutations.JSON,
    ),
    "evidence of registers": Reader(
        read=lambda path: read_evidence(path, build(), ""), originals=evaluation, kinds=mutations.JSON
    ),
    "prompts of profiles": Reader(
        read=pinned_prompts,
        originals=written("p.jsonl", '{"id": 0, "token_ids": [1, 2]}\n{"id": 1, "token_ids": [3]}\n'),
        kinds=mutations.JSON_LINES,
    ),
    "notes of drills in clusters": Reader(
        read=drill_note, originals=written("note.json", json.dumps(NOTE)), kinds=mutations.JSON
    ),
    "objects of clusters": Reader(read=cluster_object, originals=cluster_objects, kinds=mutations.JSON),
}
