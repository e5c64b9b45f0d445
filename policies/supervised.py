"""A controller set-up under a meta-contract: the unchanged configuration, supervised, with the baseline
policy as its replacement.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.compiled.meta import CompiledMeta, compile_meta
from contracts.documents import MetaContract
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from controller.fleet import FleetSetup
from controller.options import ControllerSetup, ShieldLimits
from controller.ports import Policy
from policies.certify.admission import LEARNED, TRAINED
from policies.registry import make_policy
from policies.rules.fixed import KnownGoodPolicy
from policies.spec import parse_spec

if TYPE_CHECKING:
    from policies.certify.artifact_files import Artefact


def shipped_meta() -> CompiledMeta:
    """The meta-contract that ships with the library."""
    return compile_meta(load_meta(SHIPPED_META, "selvage")[0])


def load_meta(uri: str, asked_by: str) -> tuple[MetaContract, Path]:
    """The meta-contract at ``uri``, an argument of the command ``asked_by``, and its path."""
    place = resolve_uri(uri, asked_by)
    return load_as(MetaContract, place), place


def supervised_by_uri(uri: str, spec: str, setup: ControllerSetup, asked_by: str) -> ControllerSetup:
    """``setup`` of the policy configuration ``spec`` under the meta-contract at ``uri`` ("": not supervised).

    asked_by: the command that was given ``uri``, for messages.

    Raises DocumentError if there is none, or if the artefact of ``spec`` belongs to another.
    """
    if not uri:
        return setup
    meta, _ = load_meta(uri, asked_by)
    refuse_other_artefact(spec, meta, uri)
    return supervised_setup(compile_meta(meta), setup)


def meta_sha256(uri: str) -> str | None:
    """Hash of the canonical form of the meta-contract at ``uri``; None for ""."""
    return document_sha256(load_meta(uri, "selvage")[0]) if uri else None


def own_meta(spec: str) -> str:
    """URI of the meta-contract under which the configuration ``spec`` serves: its artefact's, or else the
    shipped one.
    """
    found = _artefact(spec)
    named = None if found is None else found.manifest.spec.meta_contract
    return SHIPPED_META if found is None or named is None else str(resolve_uri(named, found.file))


def refuse_other_artefact(spec: str, meta: MetaContract, asked: str) -> None:
    """DocumentError if ``spec`` names a trained policy by an artefact of another meta-contract than ``meta``,
    which was ``asked`` for; a network alone (``onnx``) belongs to none.
    """
    found = _artefact(spec)
    if found is None:
        return
    from policies.certify.artifact_files import refuse_other_meta

    refuse_other_meta(found.manifest, found.file, meta, asked)


def _artefact(spec: str) -> Artefact | None:
    """The artefact that ``spec`` names, certified or not; None if it names none."""
    name, values = parse_spec(spec)
    uri = str(values.get("artefact", ""))
    if name not in TRAINED or values.get("onnx") or not (uri or name == LEARNED):
        return None
    # Only a trained policy needs onnxruntime.
    from contracts.loading.shipped import SHIPPED_ARTEFACT
    from policies.certify.artifact_files import load_artefact

    return load_artefact(uri or SHIPPED_ARTEFACT, None)


def baseline_of(meta: CompiledMeta, fleet: FleetSetup) -> Policy:
    """The baseline policy of ``meta``, made for ``fleet``."""
    if meta.baseline == KnownGoodPolicy().policy_id:
        return KnownGoodPolicy()
    return make_policy(meta.baseline, fleet)


def supervised_setup(
    meta: CompiledMeta, setup: ControllerSetup, *, watch_only: bool = False
) -> ControllerSetup:
    """``setup`` with its policy supervised under ``meta``; with ``watch_only`` violations only count.

    The stricter of the shield's and the meta-contract's limits apply. The baseline uses the evidence of the
    configuration's own detector: a demotion replaces the policy, not the detector.
    """
    options = replace(setup.options, limits=stricter_limits(setup.options.limits, meta))
    baseline = baseline_of(meta, setup.fleet)
    return replace(setup, options=options, meta=meta, baseline=baseline, watch_only=watch_only)


def stricter_limits(limits: ShieldLimits, meta: CompiledMeta) -> ShieldLimits:
    """The stricter of ``limits`` and the online limits of ``meta``, limit by limit."""
    most = min(limits.canary_most_ratio, meta.most("new_kernel_traffic_ratio"))
    return replace(
        limits,
        max_move_ratio=min(limits.max_move_ratio, meta.most("weight_move_per_tick")),
        min_dwell_s=max(limits.min_dwell_s, meta.most("dwell_s")),
        canary_most_ratio=most,
        canary_least_ratio=min(limits.canary_least_ratio, most),
    )
