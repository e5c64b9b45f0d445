"""The profile that a pool's kernel names, and whether it and its samples are what the pool pins."""

from __future__ import annotations

from pathlib import Path

from contracts.documents import FileRef, KernelPool, KernelProfile, PoolKernel
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.uris import OtherContentError, check_pinned, resolve_uri


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

    A kernel that pins nothing is content with any.
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
