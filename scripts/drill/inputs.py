"""Inputs of a drill: the hashes that its result prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contracts.documents import KernelContract, KernelProfile
from contracts.errors import DocumentError, refusal
from contracts.loading.files import sha256_of
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.shipped import SERVING_POOL
from contracts.loading.uris import resolve_uri
from policies.registry import configuration_sha256
from policies.supervised import load_meta, meta_sha256, refuse_other_artefact
from scripts.drill.documents import ReadDrill

#: Name of the policy of a drill without a healing controller.
NOBODY = "none"
_RUN = "selvage drill run"


def input_hashes(read: ReadDrill, policy: str, meta: str = "") -> dict[str, Any]:
    """sha256 of every document and file of the drill ``read``, of the settings and files of ``policy``, and
    of the meta-contract at ``meta`` ("": none).

    None (null): no trace, no policy, or a missing profile, which live servers do not need. Profiles, by
    kernel, pin their samples and prompts.

    Raises DocumentError for an unknown policy or setting, and for files that cannot be read.
    """
    trace = read.plan.load.trace_uri
    return {
        "drill_sha256": document_sha256(read.drill),
        "pool_sha256": document_sha256(read.pool),
        "contract_sha256": document_sha256(load_as(KernelContract, contract_file(read))),
        "profile_sha256": {one.name: _profile(one.profile, read) for one in read.pool.spec.kernels},
        "trace_sha256": sha256_of(resolve_uri(trace, read.file)) if trace else None,
        "policy_sha256": None if policy == NOBODY else _policy(policy),
        "meta_contract_sha256": meta_sha256(meta),
    }


def refuse_unfit_meta(policy: str, meta: str) -> None:
    """DocumentError if ``meta`` cannot supervise ``policy``: it is not a meta-contract, the policy's artefact
    belongs to another one, or there is no policy.
    """
    if not meta:
        return
    if policy == NOBODY:
        step = "name a --policy, or leave --meta out"
        raise refusal(_RUN, "a policy that it keeps", "--policy none", step, path="--meta")
    document, _ = load_meta(meta, _RUN)
    refuse_other_artefact(policy, document, meta)


def contract_file(read: ReadDrill) -> Path:
    """The contract of the drill ``read``."""
    return resolve_uri(read.drill.spec.contract or SERVING_POOL, read.file).resolve()


def refuse_policy(error: ValueError) -> DocumentError:
    """``error`` for an unknown policy or setting, as bad input on the command line."""
    step = "e.g. --policy hysteresis, or none"
    return refusal(_RUN, "a policy", str(error), step, path="--policy")


def _policy(spec: str) -> str:
    try:
        return configuration_sha256(spec)
    except ValueError as error:
        raise refuse_policy(error) from None


def _profile(uri: str, read: ReadDrill) -> str | None:
    file = resolve_uri(uri, read.pool_file)
    return document_sha256(load_as(KernelProfile, file)) if file.exists() else None
