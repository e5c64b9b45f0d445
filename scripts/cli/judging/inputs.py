"""Inputs of ``selvage contract evaluate|propose|bounds``: contracts, profiles with samples, logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.assess.observation_log import load_log
from contracts.assess.observations import Observations, from_samples
from contracts.assess.samples import KernelSamples, load_samples
from contracts.assess.several import join_observations
from contracts.assess.sources import SourceBound, quantisation_bits, source_bounds
from contracts.documents import KernelContract, KernelProfile
from contracts.documents.profile import HEALTHY, Fingerprint, ProfileSpec
from contracts.errors import DocumentError, refusal
from contracts.loading.files import sha256_of
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.uris import resolve_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractInputs:
    """The observations to be judged and the profile they belong to, if one was given."""

    observations: Observations
    samples: KernelSamples | None
    profile: KernelProfile | None
    profile_sha256: tuple[str, ...] = ()  # of every given profile, in order


def load_contract(name: str) -> KernelContract:
    """The contract at a path or ``package:`` name."""
    return load_as(KernelContract, resolve_uri(name, "selvage"))


def load_judged(name: str, condition: str, split: str) -> ContractInputs:
    """Observations of a profile (.yaml), a samples file (.npz) or a log (.jsonl)."""
    path = resolve_uri(name, "selvage")
    if path.suffix in (".yaml", ".yml"):
        profile, samples = load_profile(path)
        observations = _observations(path, samples, profile.spec.samples.sha256, condition, split)
        return ContractInputs(observations=observations, samples=samples, profile=profile)
    if path.suffix == ".npz":
        sha256 = _hash_of(path)
        samples = load_samples(path, sha256)  # the hash belongs to the content that is judged
        observations = _observations(path, samples, sha256, condition, split)
        return ContractInputs(observations=observations, samples=samples, profile=None)
    if path.suffix == ".jsonl":
        return ContractInputs(observations=load_log(path), samples=None, profile=None)
    raise input_refusal(
        name, "a .yaml profile, a .npz samples file or a .jsonl log", path.suffix or "no suffix"
    )


def _hash_of(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        step = "check the path and its rights"
        raise input_refusal(str(path), "a readable file", error.strerror or str(error), step) from None


def load_all(names: Sequence[str], condition: str, split: str) -> ContractInputs:
    """Observations of several inputs together: the files of one kernel, and logs.

    Raises DocumentError if profiles are of different builds, or ``join_observations`` refuses.
    """
    parts = [load_judged(name, condition, split) for name in names]
    _refuse_other_builds(names, parts)
    try:
        together = join_observations([part.observations for part in parts])
    except ValueError as error:
        raise input_refusal(", ".join(names), "inputs of one kernel, each once", str(error)) from None
    profiles = [part.profile for part in parts if part.profile is not None]
    first = next((part for part in parts if part.profile is not None), parts[0])
    return replace(first, observations=together, profile_sha256=tuple(map(document_sha256, profiles)))


def _refuse_other_builds(names: Sequence[str], parts: Sequence[ContractInputs]) -> None:
    builds = {
        name: (part.profile.spec.kernel, part.profile.spec.fingerprint)
        for name, part in zip(names, parts, strict=True)
        if part.profile is not None
    }
    first = next(iter(builds.values()), None)
    for name, build in builds.items():
        if build != first:
            raise input_refusal(
                name, "profiles of one build", f"another: {build[0]}", "evaluate each by itself"
            )


def load_profile(path: Path) -> tuple[KernelProfile, KernelSamples]:
    """A profile and the samples that it pins."""
    profile = load_as(KernelProfile, path)
    pinned = profile.spec.samples
    return profile, load_samples(resolve_uri(pinned.uri, path), pinned.sha256)


def known_sources(profile: KernelProfile) -> tuple[SourceBound, ...]:
    """Sources that separate the profile's kernel from its reference, from their fingerprints."""
    spec = profile.spec
    words = spec.reference.model_dump(include={"engine", "dtype"})
    plain = {"quantization": "none", "kv_cache_dtype": "auto"}  # the reference rounds neither
    reference = Fingerprint(**(spec.fingerprint.model_dump() | plain | words))
    return source_bounds(reference, _with_scheme(spec))


def certified_observations(judged: ContractInputs) -> Observations | None:
    """Healthy certify prompts of the judged kernel; None if only a log was given."""
    if judged.samples is None or HEALTHY not in judged.samples.condition_names:
        return None
    return from_samples(judged.samples, judged.observations.sha256, HEALTHY, "certify")


def _with_scheme(spec: ProfileSpec) -> Fingerprint:
    """The fingerprint; if it names only a container of weights, the kernel's name gives the scheme."""
    told, named = quantisation_bits(spec.fingerprint.quantization), quantisation_bits(spec.kernel)
    if told is not None or named is None or spec.fingerprint.quantization == "none":
        return spec.fingerprint
    return spec.fingerprint.model_copy(update={"quantization": spec.kernel})


def input_refusal(
    file: str, expected: str, actual: str, next_step: str = "check the command line"
) -> DocumentError:
    """Bad input on the command line as the one error with exit code 2."""
    return refusal(file, expected, actual, next_step)


def _observations(
    path: Path, samples: KernelSamples, sha256: str, condition: str, split: str
) -> Observations:
    try:
        return from_samples(samples, sha256, condition, split)
    except (KeyError, ValueError) as error:
        raise input_refusal(str(path), "a measured condition and split", str(error.args[0])) from error
