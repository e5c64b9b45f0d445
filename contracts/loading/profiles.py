"""The profiles that documents name: are they the pinned ones, and what was not measured of their kernels?

What was not measured is reported when a document is validated, not when a simulation ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contracts.documents import (
    Document,
    FileRef,
    KernelContract,
    KernelPool,
    KernelProfile,
    PoolKernel,
    Scenario,
)
from contracts.documents.pool import PoolSpec
from contracts.documents.scenario import ScenarioSpec
from contracts.errors import DocumentError, KeyPath, Problem
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.uris import OtherContentError, check_pinned, resolve_uri
from contracts.rules.estimators import with_measured_estimators

#: First words of the note of a profile whose step times were measured but are too uncertain to use.
REFUSED_STEP_TIMES = "Step times were refused"


class ProfileDiffersError(DocumentError):
    """A profile, or its samples, are not what was pinned."""


def kernel_profile(kernel: PoolKernel, file: Path | str) -> tuple[KernelProfile, Path]:
    """The profile of ``kernel``, a kernel of the pool in ``file``, and its place.

    DocumentError where it cannot be read, ProfileDiffersError where the pool pins another one.
    """
    place = resolve_uri(kernel.profile, file)
    profile = load_as(KernelProfile, place)
    check_profile(kernel, profile, place)
    return profile, place


def check_profile(kernel: PoolKernel, profile: KernelProfile, place: Path | str) -> None:
    """ProfileDiffersError unless ``profile``, read from ``place``, and its samples are what ``kernel`` pins.

    A kernel that pins nothing accepts any profile.
    """
    pinned = kernel.profile_sha256
    if pinned is None:
        return
    found = document_sha256(profile)
    if found != pinned:
        hint = f"kernel {kernel.name} pins another profile; restore the file, or pin what it holds now"
        raise ProfileDiffersError([Problem(str(place), 0, "", f"sha256 {pinned}", f"sha256 {found}", hint)])
    samples = profile.spec.samples
    try:
        check_pinned(FileRef(uri=samples.uri, sha256=samples.sha256), place)
    except OtherContentError as error:
        raise ProfileDiffersError(list(error.problems)) from None


def check_pinned_profiles(pool: KernelPool, file: Path | str) -> None:
    """``kernel_profile`` of every kernel of ``pool`` that pins its profile; raises as it does."""
    for kernel in pool.spec.kernels:
        if kernel.profile_sha256 is not None:
            kernel_profile(kernel, file)


def measured_notes(document: Document, file: str) -> Iterator[tuple[KeyPath, str]]:
    """Place and text of each remark on ``document`` and the profiles that it refers to.

    What cannot be read is passed over: the rules on references report it.
    """
    match document:
        case KernelProfile():
            yield from _of_profile(document, ("spec",))
        case KernelPool(spec=spec):
            yield from _of_pool(spec, file, ("spec", "kernels"))
        case Scenario(spec=spec):
            yield from _of_scenario(spec, file)
        case _:
            pass


def _of_profile(profile: KernelProfile, place: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    name = profile.spec.kernel
    if profile.spec.step_time is None:
        yield place, f"kernel {name} has no step times: it can be judged, but not simulated"
    columns = healthy_columns(profile)
    if not any(column.endswith("@full_vocab") for column in columns):
        yield place, f"kernel {name} was measured by its most probable tokens: divergences are lower bounds"


def _of_pool(pool: PoolSpec, file: str, place: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for index, profile in enumerate(_profiles(pool, file)):
        if profile is not None:
            yield from _of_profile(profile, (*place, index, "profile"))


def _of_scenario(spec: ScenarioSpec, file: str) -> Iterator[tuple[KeyPath, str]]:
    pool, home = spec.pool, file
    try:
        if pool is None:
            home = str(resolve_uri(str(spec.pool_uri), file))
            pool = load_as(KernelPool, home).spec
        contract = load_as(KernelContract, resolve_uri(spec.contract, file))
    except DocumentError:
        return
    place: KeyPath = ("spec", "pool_uri") if spec.pool is None else ("spec", "pool", "kernels")
    known = [profile for profile in _profiles(pool, home) if profile is not None]
    yield from dict.fromkeys(each for profile in known for each in _of_profile(profile, place))
    if known:
        columns = set.intersection(*(healthy_columns(profile) for profile in known))
        for text in with_measured_estimators(contract, columns).notes():
            yield ("spec", "contract"), f"clauses {text}"


def why_untimed(profile: KernelProfile) -> tuple[str, str]:
    """Why ``profile`` has no step times, and what its reader does next."""
    if any(note.startswith(REFUSED_STEP_TIMES) for note in profile.spec.notes):
        hint = "its notes say how sure they were; measure it again for longer (--step-seconds) or when the"
        return "none: they were refused", f"{hint} machine is quieter, or accept more by --step-half-width"
    return "none", "measure it again without --no-step-times"


def healthy_columns(profile: KernelProfile) -> set[str]:
    """Columns that were measured of the healthy kernel, as ``<column>@<estimator>``."""
    return {f"{one.metric}@{one.estimator}" for one in profile.spec.conditions[0].measures}


def _profiles(pool: PoolSpec, file: str) -> list[KernelProfile | None]:
    """Profile of each kernel; None where it cannot be read."""
    found: list[KernelProfile | None] = []
    for kernel in pool.kernels:
        try:
            found.append(load_as(KernelProfile, resolve_uri(kernel.profile, file)))
        except DocumentError:
            found.append(None)
    return found
