"""A ``RoutePolicy`` document as a ``ControllerSetup``: its policy, shield and meta-contract.

Every world compiles its document here. A policy that drives (mode ``enforce``) must be certified under the
document's meta-contract, and so must its baseline, with its present settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from contracts.compiled.meta import compile_meta
from contracts.documents import MetaContract, PolicyArtifact, RoutePolicy
from contracts.documents.artifact import Certificate
from contracts.errors import DocumentError, refusal
from contracts.loading.files import sha256_of
from contracts.loading.loader import document_sha256, load_as, read_text
from contracts.loading.uris import PACKAGE_PREFIX, read_pinned, resolve_uri
from controller.fleet import FleetSetup
from controller.options import ControllerSetup, ShieldLimits
from policies.artefacts import builtin_sha256, load_artefact, manifest_subject
from policies.certify.admission import (
    TRAINED,
    load_certificate,
    refuse_unless_certified,
    refuse_unless_passing,
)
from policies.certify.artifact_files import drives_as
from policies.certify.coverage import Facts, fleet_facts, outside, unknown
from policies.certify.signature import refuse_unsigned
from policies.registry import make_configuration, make_policy
from policies.rules.fixed import KnownGoodPolicy
from policies.supervised import supervised_setup

#: Path of a baseline's certificate, next to the meta-contract that names the baseline.
CERTIFICATE = "policies/{baseline}-certificate.json"


def route_setup(
    document: RoutePolicy, file: str, fleet: FleetSetup, load_ratio: float | None = None
) -> ControllerSetup:
    """The configuration of ``document``, read from ``file``, behind its shield and under its meta-contract.
    load_ratio: the declared total peak load of ``fleet`` (None: not declared).

    Raises DocumentError for a policy, artefact or meta-contract that does not fit, and if ``fleet`` has
    another contract or tick than the document. A policy or a baseline without a certificate under this
    meta-contract may observe (``uncertified`` says so), never drive.
    """
    spec = document.spec
    _expect(file, "contract", fleet.contract.name, spec.contract, "name the contract that the fleet keeps")
    _expect(file, "tick_s", f"{fleet.tick_s:g}", f"{spec.tick_s:g}", "give the tick of the world it runs in")
    meta, _ = _meta_of(document, file)
    _check_artefact(document, file)
    lacking = _without_certificate(document, file)
    if lacking and spec.mode == "enforce":
        raise next(iter(lacking.values()))
    try:
        configuration = make_configuration(
            _configuration_text(document, file, "artefact" not in lacking), fleet
        )
    except ValueError as error:
        raise _refusal(file, "policy", "a policy", str(error), "e.g. hysteresis") from None
    limited = replace(
        configuration,
        options=replace(configuration.options, limits=ShieldLimits.of(spec.shield)),
        hang_timeouts=spec.hang_timeouts,
        own_clocks=spec.own_clocks or "certified",
    )
    setup = supervised_setup(compile_meta(meta), limited)
    return setup if spec.mode != "enforce" else _covered(setup, document, file, load_ratio)


def uncertified(document: RoutePolicy, file: str) -> tuple[str, ...]:
    """Why ``document``, read from ``file``, cannot be enforced; empty if it can."""
    return tuple(str(error) for error in _without_certificate(document, file).values())


def _without_certificate(document: RoutePolicy, file: str) -> dict[str, DocumentError]:
    """Deficiencies of the certificates of ``artefact`` and ``baseline`` under the document's
    meta-contract.
    """
    meta, place = _meta_of(document, file)
    checks: dict[str, Callable[[], object]] = {
        "artefact": partial(_refuse_uncertified_artefact, document, file, meta, place),
        "baseline": partial(refuse_uncertified_baseline, meta, place),
    }
    found = {}
    for name, check in checks.items():
        try:
            check()
        except DocumentError as error:
            found[name] = error
    return found


def _meta_of(document: RoutePolicy, file: str) -> tuple[MetaContract, Path]:
    """The document's meta-contract, which must be the pinned one, and its path."""
    place = resolve_uri(document.spec.meta_contract, file)
    meta, pinned = load_as(MetaContract, place), document.spec.meta_contract_sha256
    if pinned is not None:
        hint = "review what changed in it, then pin what it is now"
        _expect(file, "meta_contract_sha256", document_sha256(meta), pinned, hint)
    return meta, place


def _refuse_uncertified_artefact(
    document: RoutePolicy, file: str, meta: MetaContract, meta_file: Path
) -> None:
    """DocumentError unless the document's artefact, if it has one, is certified under ``meta``, read from
    ``meta_file``.
    """
    if document.spec.artifact is None:
        return
    place = resolve_uri(document.spec.artifact.uri, file)
    manifest = load_artefact(str(place), allow_uncertified=True).manifest
    refuse_unless_certified(manifest, meta, manifest_subject(manifest), str(place), meta_file)


def _covered(
    setup: ControllerSetup, document: RoutePolicy, file: str, load_ratio: float | None
) -> ControllerSetup:
    """``setup`` in which no policy drives a fleet that its certificate does not cover: the baseline replaces
    the policy, and the home table the baseline. The shield removes hard violations from that table. An
    uncovered policy that moves the traffic of a healthy fleet as a precaution could do harm.
    """
    gaps = coverage_gaps(document, file, setup.fleet, load_ratio)
    baseline = make_policy("fixed", setup.fleet) if gaps.baseline else setup.baseline
    assert baseline is not None  # every meta-contract has one
    return replace(setup, baseline=baseline, policy=baseline if gaps.policy else setup.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageGaps:
    """Facts that the certificates of policy and baseline do not cover, as text; empty if all are covered."""

    policy: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Facts that were not compared, and why; they replace no policy."""

    def lines(self, document: RoutePolicy) -> tuple[str, ...]:
        """Why a fallback drives instead of the policy in ``document``, and the commands that certify."""
        policy, meta = document.spec.policy, document.spec.meta_contract
        named = f"{policy}:onnx=FILE" if policy in TRAINED else policy
        commands = {"policy": named, "baseline": "BASELINE"}
        return tuple(
            f"{role} is not certified for this fleet, a fallback drives: {gap}; certify it on suites with "
            f"such fleets: selvage policy certify {commands[role]} --meta {meta}"
            for role, gaps in (("policy", self.policy), ("baseline", self.baseline))
            for gap in gaps
        )


def coverage_gaps(
    document: RoutePolicy, file: str, fleet: FleetSetup, load_ratio: float | None = None
) -> CoverageGaps:
    """Where ``fleet`` under ``load_ratio`` lies outside the certified range of policy and baseline of
    ``document``.

    A built-in policy has no certificate of its own here; only the supervisor limits it.
    """
    artefact = document.spec.artifact
    held = None if artefact is None else _manifest_certificate(resolve_uri(artefact.uri, file))
    place = resolve_uri(document.spec.meta_contract, file)
    baseline = refuse_uncertified_baseline(load_as(MetaContract, place), place)
    facts = fleet_facts(fleet, load_ratio)
    return CoverageGaps(
        policy=() if held is None else outside(held, facts),
        baseline=() if baseline is None else outside(baseline, facts),
        unknown=_unknown({"policy": held, "baseline": baseline}, facts),
    )


def _unknown(certificates: Mapping[str, Certificate | None], facts: Facts) -> tuple[str, ...]:
    return tuple(
        f"not compared with the certificate of the {role}: {fact}"
        for role, certificate in certificates.items()
        if certificate is not None
        for fact in unknown(certificate, facts)
    )


def bound_sha256(document: RoutePolicy, file: str) -> dict[str, str | None]:
    """Hashes of everything else that decides for ``document``, read from ``file``, pinned or not: the
    canonical form of its meta-contract, and the file of the baseline's certificate (None: there is none).
    """
    meta, place = _meta_of(document, file)
    held = place.parent / CERTIFICATE.format(baseline=meta.spec.baseline)
    return {
        "meta_contract_sha256": document_sha256(meta),
        "baseline_certificate_sha256": sha256_of(held) if held.is_file() else None,
    }


def _manifest_certificate(file: Path) -> Certificate | None:
    return load_as(PolicyArtifact, file).spec.certificate


def refuse_uncertified_baseline(meta: MetaContract, file: Path) -> Certificate | None:
    """The certificate of the baseline of ``meta``, read from ``file``; DocumentError unless it is certified
    with its present settings.

    The known-good kernel makes no decisions, and needs no certificate.
    """
    baseline = meta.spec.baseline
    if baseline == KnownGoodPolicy().policy_id:
        return None
    place = file.parent / CERTIFICATE.format(baseline=baseline)
    next_step = f"selvage policy certify {baseline} --meta {file} --out {place}"
    if not place.is_file():
        raise _refusal(str(file), "baseline", f"its certificate, {place}", "none", next_step)
    found = load_certificate(read_text(place), str(place))
    if found.subject_sha256 != builtin_sha256(baseline):
        expected = f"subject_sha256 {builtin_sha256(baseline)}, of {baseline} as it is set today"
        raise _refusal(str(place), "subject_sha256", expected, found.subject_sha256, next_step)
    _refuse_failing(found, baseline, place)
    refuse_unless_passing(found, meta, str(place), file)
    return found


def _refuse_failing(found: Certificate, baseline: str, place: Path) -> None:
    """DocumentError if the baseline itself broke clauses: training the policy cannot fix that."""
    failed = [one.id for one in found.clauses if not one.passed]
    if found.passed and not failed:
        return
    expected = f"a passing certificate of {baseline}, which takes over where the policy breaks a clause"
    hint = (
        f"{baseline} does not keep this meta-contract on this fleet: write it with another baseline "
        f"(`selvage policy suite --baseline {KnownGoodPolicy().policy_id}` needs no certificate), and "
        "certify the policy under that one"
    )
    actual = f"failed: {', '.join(failed) or 'the suite as a whole'}"
    raise _refusal(str(place), "passed", expected, actual, hint)


def _check_artefact(document: RoutePolicy, file: str) -> None:
    """DocumentError unless trained policies, and only these, have an artefact of their kind, as pinned."""
    name, artefact = document.spec.policy, document.spec.artifact
    if (name in TRAINED) != (artefact is not None):
        expected = "a manifest" if name in TRAINED else f"nothing, as {name!r} is built in"
        actual = "nothing" if artefact is None else artefact.uri
        hint = f"policy {' or '.join(TRAINED)} and artifact go together"
        raise _refusal(file, "artifact", expected, actual, hint)
    if artefact is not None:
        read_pinned(artefact, file)
        found = drives_as(load_as(PolicyArtifact, resolve_uri(artefact.uri, file)))
        _expect(file, "policy", found, name, "name the policy as which the network of this artifact drives")
    _refuse_unsigned(document, file)


def _refuse_unsigned(document: RoutePolicy, file: str) -> None:
    """DocumentError unless the pinned key signed everything that it must sign."""
    key, artefact = document.spec.signed_by, document.spec.artifact
    if key is None:
        return
    asked = [] if artefact is None else [resolve_uri(artefact.uri, file)]
    if not document.spec.meta_contract.startswith(PACKAGE_PREFIX):
        meta, place = _meta_of(document, file)
        held = place.parent / CERTIFICATE.format(baseline=meta.spec.baseline)
        asked += [] if meta.spec.baseline == KnownGoodPolicy().policy_id else [held]
    if not asked:
        raise _refusal(
            file, "signed_by", "an artifact, or a meta-contract of its own", "neither", "leave it out"
        )
    for one in asked:
        refuse_unsigned(one, key)


def _configuration_text(document: RoutePolicy, file: str, certified: bool) -> str:
    """Policy and artefact as the text of a configuration; the bare network if it is not certified."""
    name, artefact = document.spec.policy, document.spec.artifact
    if artefact is None:
        return name
    place = resolve_uri(artefact.uri, file)
    if certified:
        return f"{name}:artefact={place}"
    manifest = load_artefact(str(place), allow_uncertified=True).manifest
    return f"{name}:onnx={resolve_uri(manifest.spec.onnx.uri, place)}"


def _expect(file: str, key: str, expected: str, actual: str, next_step: str) -> None:
    if expected != actual:
        raise _refusal(file, key, expected, actual, next_step)


def _refusal(file: str, key: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(file, expected, actual, next_step, path=f"spec.{key}")
