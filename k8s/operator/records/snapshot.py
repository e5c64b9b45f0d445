"""The snapshot from which a new leader continues: controller state and last good documents in a ConfigMap.

There is one ConfigMap per policy. The state is compressed, versioned JSON of ``controller.state_json``; a
hash detects a torn write. The state refers to slots only, so the pod of each slot is stored beside it.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.errors import DocumentError, StateError
from contracts.loading.files import canonical_sha256
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES
from contracts.telemetry import ReplicaState
from controller.judge.replicas.quarantine_pass import most_away
from controller.options import ControllerSetup
from controller.state import ControllerState, QuarantineReason, altered
from controller.state_json import state_from_json, state_to_json
from k8s.operator.admission import Documents
from k8s.operator.objects import Manifest
from k8s.operator.pods.replicas import PodReplica, Slots
from k8s.resources.kinds import document_of, object_of

#: A ConfigMap holds one MiB, and base64 adds a third to the size.
MOST_BYTES = 700_000
#: Compression level of gzip: low, because a state is written often and read seldom.
_LEVEL = 3
#: No slot has a pod.
_NOBODY: Slots = {}
_Part = TypeVar("_Part")
_STATE, _SHA256, _DOCUMENTS = "state.json.gz", "state-sha256", "documents.json"
_SLOTS, _UIDS, _RETURNING = "slots.json", "uids.json", "returning.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The stored snapshot. documents None: there are no valid ones; state: JSON, "" for none."""

    documents: Documents | None
    state: str
    problem: str = ""
    """Why a part could not be read, "" if all could."""
    slots: Slots = field(default_factory=dict)
    """Kernel -> slot of each of its servers."""
    uids: Mapping[str, str] = field(default_factory=dict)
    """Uid of each server's pod. If it is missing, a pod with the server's name is taken for the same pod."""
    returning: tuple[str, ...] = ()
    """Slots whose pods were returning from quarantine."""


def config_name(policy: str) -> str:
    """Name of the ConfigMap of ``policy``."""
    return f"selvage-state-{policy}"


def snapshot_config(
    policy: Manifest,
    documents: str,
    state: ControllerState,
    setup: ControllerSetup,
    slots: Slots,
    uids: Mapping[str, str],
    returning: Sequence[str] = (),
) -> Manifest:
    """The ConfigMap, owned by its policy. ``documents``: ``documents_text`` of those in force; ``slots``:
    slot of each server; ``uids``: of the servers' pods; ``returning``: slots of returning pods.

    Raises ValueError if the state is too large for a ConfigMap.
    """
    text = state_to_json(state, setup)
    packed = gzip.compress(text.encode(), _LEVEL, mtime=0)
    if len(packed) > MOST_BYTES:
        raise ValueError(f"expected a state of at most {MOST_BYTES} bytes, got {len(packed)}")
    metadata = policy["metadata"]
    owner = {
        "apiVersion": policy["apiVersion"],
        "kind": policy["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_name(metadata["name"]),
            "labels": {"app.kubernetes.io/part-of": "selvage"},
            "ownerReferences": [owner],
        },
        "data": {
            _SHA256: canonical_sha256(text),
            _DOCUMENTS: documents,
            _SLOTS: json.dumps(slots, sort_keys=True),
            _UIDS: json.dumps(dict(uids), sort_keys=True),
            _RETURNING: json.dumps(sorted(returning)),
        },
        "binaryData": {_STATE: base64.b64encode(packed).decode()},
    }


def read_snapshot(config: Manifest | None) -> Snapshot:
    """The snapshot in ``config``. Parts that cannot be read are left out and named in ``problem``."""
    if config is None:
        return Snapshot(documents=None, state="")
    read = _Reading()
    data: dict[str, Any] = read.part("fields", lambda: _fields(config), {})
    documents = read.part("documents", lambda: _documents(data.get(_DOCUMENTS, "")), None)
    slots: Slots = read.part("places", lambda: _slots(data.get(_SLOTS, "{}")), _NOBODY)
    uids: dict[str, str] = read.part("uids", lambda: _uids(data.get(_UIDS, "{}")), {})
    returning: tuple[str, ...] = read.part("returns", lambda: _names(data.get(_RETURNING, "[]")), ())
    text = read.part("state", lambda: _unpacked(base64.b64decode(data.get(_STATE, ""))), "")
    if not read.failed("state") and canonical_sha256(text) != data.get(_SHA256):
        read.problems["state"] = "the kept state is not what was written"
    if not read.problems and _SLOTS not in data:
        message = "the kept state is of an earlier version: it does not say which pod is in which place"
        read.problems["places"] = message
    whole = not (read.failed("state") or read.failed("places"))
    problem = "; ".join(read.problems.values())
    return Snapshot(
        documents=documents,
        state=text if whole else "",
        problem=problem,
        slots=slots,
        uids=uids,
        returning=returning,
    )


def _fields(config: Manifest) -> dict[str, Any]:
    return {**(config.get("data") or {}), **(config.get("binaryData") or {})}


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads the parts of a snapshot independently, so that a part in another version's format does not affect
    the others.
    """

    problems: dict[str, str] = field(default_factory=dict)

    def part(self, name: str, read: Callable[[], _Part], otherwise: _Part) -> _Part:
        """The result of ``read``, or ``otherwise`` if it fails."""
        try:
            return read()
        except (DocumentError, OSError, EOFError, zlib.error, *MALFORMED) as error:
            self.problems[name] = f"the kept {name} cannot be read: {error}"
            return otherwise

    def failed(self, name: str) -> bool:
        """Whether the part could not be read."""
        return name in self.problems


def kept_state(kept: Snapshot, setup: ControllerSetup) -> tuple[ControllerState | None, str]:
    """The state for ``setup``; None and the reason if it has another fleet, contract or version."""
    if not kept.state:
        return None, kept.problem
    try:
        return state_from_json(kept.state, setup), ""
    except StateError as error:
        return None, str(error)


def held_out(
    state: ControllerState, setup: ControllerSetup, pods: Sequence[PodReplica], now_s: float
) -> ControllerState:
    """Initial ``state`` of one fleet, with a quarantine from now on for each of ``pods`` whose label says
    that it is out of rotation, whatever set that label. Such pods return in the usual way.

    The contract's cap on quarantined replicas holds, and the last ready pod of a kernel is never included. If
    the policy's controller does not quarantine, ``state`` is returned without quarantines.
    """
    layout, cap_ratio = setup.layout, setup.contract.ejection_cap_ratio
    away = np.zeros_like(state.quarantined)
    for kernel in layout.kernels if setup.options.quarantine else ():
        own = [one for one in pods if one.replica.kernel == kernel]
        held = _held([one for one in own if not one.leaves], cap_ratio)
        away[0, [layout.replicas.index(one.slot) for one in held]] = True
    return altered(
        state,
        quarantined=away,
        quarantine_reason=np.where(away, int(QuarantineReason.DEPARTS), state.quarantine_reason),
        quarantined_at_s=np.where(away, now_s, state.quarantined_at_s),
        quarantines=state.quarantines + away,
    )


def _held(pods: Sequence[PodReplica], cap_ratio: float) -> list[PodReplica]:
    """The pods of one kernel that stay out: ready ones up to the cap; also those that are not ready, if a
    ready pod remains in rotation.
    """
    ready = [one for one in pods if one.replica.state == ReplicaState.READY]
    most = max(0, int(most_away(np.array([len(ready)]), cap_ratio)[0]))
    held = [one for one in ready if one.taken_out][:most]
    starting = [one for one in pods if one.taken_out and one not in ready]
    return held + starting if len(held) < len(ready) else held


def _unpacked(packed: bytes) -> str:
    """The state in ``packed``; ValueError if it exceeds the limit, so it was not written by Selvage."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        text = stream.read(TEXT_BYTES + 1)
    if len(text) > TEXT_BYTES:
        raise ValueError(f"expected a state of at most {TEXT_BYTES} bytes")
    return text.decode()


def documents_text(documents: Documents) -> str:
    """The documents as stored in a snapshot."""
    found = [object_of(one) for one in (documents.policy, documents.pool, documents.contract)]
    return json.dumps(found, sort_keys=True, ensure_ascii=True)


def _slots(text: str) -> Slots:
    """Slots in ``text``; ValueError unless each server of a kernel has its own slot."""
    found = json_of(text)
    for kernel, held in found.items():
        names = list(held.values())
        if not all(isinstance(one, str) for one in names) or len(set(names)) < len(names):
            raise ValueError(f"expected one slot for each server of {kernel}")
    return {str(kernel): dict(held) for kernel, held in found.items()}


def _uids(text: str) -> dict[str, str]:
    """Uids in ``text``; ValueError unless each server has one."""
    found = json_of(text)
    if not all(isinstance(one, str) for one in found.values()):
        raise ValueError("expected one uid for each server")
    return dict(found)


def _names(text: str) -> tuple[str, ...]:
    """Names in ``text``; ValueError unless it is a list of names."""
    found = json_of(text)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("expected names of places")
    return tuple(found)


def _documents(text: str) -> Documents | None:
    if not text:
        return None
    policy, pool, contract = (document_of(one) for one in json.loads(text))
    if (
        isinstance(policy, RoutePolicy)
        and isinstance(pool, KernelPool)
        and isinstance(contract, KernelContract)
    ):
        return Documents(policy=policy, pool=pool, contract=contract)
    raise ValueError("expected a policy, a pool and a contract")
