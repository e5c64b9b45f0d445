"""What a new leader goes on from, a ConfigMap per policy: the controller's state and the last good documents.

The state is versioned JSON of ``controller.state_json``, compressed; a hash over it tells a torn write.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from dataclasses import dataclass
from typing import Any

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.errors import DocumentError, StateError
from contracts.loading.files import canonical_sha256
from contracts.loading.untrusted import MALFORMED
from contracts.regular_files import TEXT_BYTES
from controller.options import ControllerSetup
from controller.state import ControllerState
from controller.state_json import state_from_json, state_to_json
from k8s.operator.admission import Documents
from k8s.operator.objects import Manifest
from k8s.resources.kinds import document_of, object_of

#: A ConfigMap holds one MiB; base64 takes a third of it.
MOST_BYTES = 700_000
#: How hard gzip tries: a state is kept often and read seldom.
_LEVEL = 3
_STATE, _SHA256, _DOCUMENTS = "state.json.gz", "state-sha256", "documents.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was kept. documents None: none that are sound; state: JSON, "" for none."""

    documents: Documents | None
    state: str
    problem: str = ""
    """Why something was left out."""


def config_name(policy: str) -> str:
    """Of the ConfigMap of ``policy``."""
    return f"selvage-state-{policy}"


def snapshot_config(
    policy: Manifest, documents: str, state: ControllerState, setup: ControllerSetup
) -> Manifest:
    """The ConfigMap, which goes with its policy; ``documents``: ``documents_text`` of what is in force.

    ValueError where the state is too large for one.
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
        "data": {_SHA256: canonical_sha256(text), _DOCUMENTS: documents},
        "binaryData": {_STATE: base64.b64encode(packed).decode()},
    }


def read_snapshot(config: Manifest | None) -> Snapshot:
    """What ``config`` holds; whatever cannot be read is left out and said."""
    if config is None:
        return Snapshot(documents=None, state="")
    try:
        data: dict[str, Any] = {**(config.get("data") or {}), **(config.get("binaryData") or {})}
        documents = _documents(data.get(_DOCUMENTS, ""))
        text = _unpacked(base64.b64decode(data.get(_STATE, "")))
    except (DocumentError, OSError, EOFError, zlib.error, *MALFORMED) as error:
        return Snapshot(documents=None, state="", problem=f"the kept state is unreadable: {error}")
    if canonical_sha256(text) != data.get(_SHA256):
        return Snapshot(documents=documents, state="", problem="the kept state is not what was written")
    return Snapshot(documents=documents, state=text)


def kept_state(kept: Snapshot, setup: ControllerSetup) -> tuple[ControllerState | None, str]:
    """The state for ``setup``; None and why where it is another fleet's, contract's or version's."""
    if not kept.state:
        return None, kept.problem
    try:
        return state_from_json(kept.state, setup), ""
    except StateError as error:
        return None, str(error)


def _unpacked(packed: bytes) -> str:
    """The state in ``packed``; ValueError for one beyond the limit, which is no state of ours."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        text = stream.read(TEXT_BYTES + 1)
    if len(text) > TEXT_BYTES:
        raise ValueError(f"expected a state of at most {TEXT_BYTES} bytes")
    return text.decode()


def documents_text(documents: Documents) -> str:
    """The documents as a snapshot holds them."""
    found = [object_of(one) for one in (documents.policy, documents.pool, documents.contract)]
    return json.dumps(found, sort_keys=True, ensure_ascii=True)


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
