"""The controller that heals a live fleet during a drill: ``selvage run`` as a separate process."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.documents import KernelContract, RoutePolicy
from contracts.documents.drill import Undo
from contracts.documents.envelope import FileRef
from contracts.loading.files import sha256_of, write_pinned
from contracts.loading.loader import dump_text, load_as
from contracts.loading.oci import OCI_PREFIX
from contracts.loading.shipped import LIBRARY, LIVE_ARTEFACT, SHIPPED_ARTEFACT
from contracts.loading.uris import PACKAGE_PREFIX, resolve_uri
from faults.drill.runner import Say
from live.control.journal import CONTROL
from live.drill.healer import MoveReasons
from live.errors import LiveError
from live.fleet.state import FleetFolder
from policies.artefacts import load_artefact
from policies.certify.admission import LEARNED, TRAINED
from policies.spec import parse_spec
from policies.supervised import meta_sha256, own_meta
from scripts.guard import die_with

_READY, _START_S, _STOP_S, _POLL_S = " drives; ", 400.0, 15.0, 0.1


@dataclass(slots=True)
class RunningController:
    """``live.drill.healer.Healer``: the controller of the fleet of ``pool`` in ``folder``. meta: URI of the
    meta-contract of ``policy``; "": that of its artefact, else the shipped one.
    """

    folder: FleetFolder
    pool: str
    policy: str
    meta: str
    contract: Path
    say: Say
    undo: Undo = field(default_factory=Undo)
    _process: BaseProcess | None = field(default=None)
    _reasons: MoveReasons | None = field(default=None)

    def start(self) -> None:
        """Start it and wait until it drives. LiveError with its output if it does not."""
        log, document = self.folder.log("drill-controller"), self.document()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        given = (self.folder.path, document, self.contract, log, self.undo)
        self._process = multiprocessing.get_context("spawn").Process(target=_control, args=given)
        self._process.start()
        deadline_at_s = time.monotonic() + _START_S
        while _READY not in (said := log.read_text(errors="replace")):
            if not self._process.is_alive() or time.monotonic() > deadline_at_s:
                self.stop()
                last = said.strip().splitlines()[-1:] or ["it said nothing"]
                raise LiveError(f"the controller does not drive: {last[0]}; see {log}")
            time.sleep(_POLL_S)
        self.say(f"{self.policy} drives")

    def stop(self) -> None:
        """Ask it to end, then force it; the last table stays."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_STOP_S)
        self._process = None

    def for_capacity(self, slices: tuple[str, ...]) -> NDArray[np.bool_]:
        """Bool [S], from the controller's log."""
        if self._reasons is None:
            self._reasons = MoveReasons(self.folder.path / CONTROL, slices)
        return self._reasons.for_capacity()

    def document(self) -> Path:
        """``driving_document`` of this policy as a file."""
        path = self.folder.drills / "route-policy.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = driving_document(self.pool, self.policy, self.meta, self.contract)
        write_pinned(path, dump_text(document).encode())
        return path


def driving_document(pool: str, policy: str, meta: str, contract: Path) -> RoutePolicy:
    """The shipped RoutePolicy of live fleets with ``policy`` and the meta-contract at ``meta`` in it ("":
    that of its artefact, else the shipped one), pinned, for ``pool`` and the contract in the file.
    """
    shipped = load_as(RoutePolicy, resolve_uri(f"{LIBRARY}live-route-policy.yaml", Path("drill")))
    names = {"pool": pool, "contract": load_as(KernelContract, contract).metadata.name}
    own = names | policy_fields(policy) | meta_fields(meta or own_meta(policy))
    return shipped.model_copy(update={"spec": shipped.spec.model_copy(update=own)})


def on_servers(policy: str, slices: int) -> str:
    """The configuration ``policy`` in the form that drives running servers of this many slices.

    A network's file reads one number of slices: ``learned`` alone is the shipped network unchanged, as
    certified for the pools of live drills, if these have that number.
    """
    if policy != LEARNED:
        return policy
    from policies.learned.runner import ScoreRunner  # needs onnxruntime, as learned policies do

    reads = ScoreRunner(load_artefact(LIVE_ARTEFACT, allow_uncertified=True).content, LIVE_ARTEFACT).slices
    return f"{LEARNED}:artefact={LIVE_ARTEFACT}" if reads == slices else policy


def policy_fields(policy: str) -> dict[str, object]:
    """``policy`` and ``artifact`` of a RoutePolicy under which the configuration ``policy`` drives; a trained
    one is ``learned``, the shipped one, or ``learned:artefact=MANIFEST`` or ``gym:artefact=MANIFEST``.
    """
    name, values = parse_spec(policy)
    uri = str(values.get("artefact", ""))
    if name not in TRAINED or set(values) - {"artefact"} or not (uri or name == LEARNED):
        return {"policy": policy, "artifact": None}
    own = FileRef(uri=_absolute(uri), sha256=sha256_of(resolve_uri(uri, ""))) if uri else shipped_artefact()
    return {"policy": name, "artifact": own}


def shipped_artefact() -> FileRef:
    """The shipped learned policy, pinned."""
    return FileRef(uri=SHIPPED_ARTEFACT, sha256=sha256_of(resolve_uri(SHIPPED_ARTEFACT, "drill")))


def meta_fields(uri: str) -> dict[str, object]:
    """The fields of a RoutePolicy that name and pin the meta-contract at ``uri``."""
    return {"meta_contract": _absolute(uri), "meta_contract_sha256": meta_sha256(uri)}


def _absolute(uri: str) -> str:
    """``uri``, with an absolute path for a file: the document that names it is elsewhere."""
    return uri if uri.startswith((PACKAGE_PREFIX, OCI_PREFIX)) else str(resolve_uri(uri, "").absolute())


def _control(folder: Path, document: Path, contract: Path, log: Path, undo: Undo) -> None:
    """The controller's process; its output goes to its log."""
    die_with(os.getppid())
    os.setsid()  # a terminal's Ctrl-C is for the parent process
    with log.open("a", encoding="utf-8", buffering=1) as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        from scripts.cli.main import app

        words = ["run", str(document), "--folder", str(folder), "--contract", str(contract)]
        words += ["--verify-probes", str(undo.verify_probes), "--readmit-over", str(undo.readmit_over_s)]
        sys.exit(app([*words, "--metrics-port", "0"], standalone_mode=False))
