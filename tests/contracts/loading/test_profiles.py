"""A pool may pin its kernels' profiles; other profiles or samples are refused by name and hash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contracts.documents import KernelPool, KernelProfile, PoolKernel
from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.profiles import ProfileDiffersError, kernel_profile
from tests.support.documents.references import reference_problems
from tests.support.paths import ROOT

PROFILES = ROOT / "contracts" / "library" / "profiles"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A copy of a shipped profile with its samples, which a test may change."""
    for name in ("fp8.yaml", "fp8.npz"):
        shutil.copy(PROFILES / name, tmp_path / name)
    return tmp_path / "fp8.yaml"


def pinning(profile: Path, sha256: str | None) -> PoolKernel:
    """A kernel of this profile."""
    return PoolKernel(name="fp8", profile=str(profile), profile_sha256=sha256, replicas=1, role="known_good")


def test_the_pinned_profile_is_accepted(profile: Path) -> None:
    """A profile whose canonical form has the pinned hash is accepted, however it is spelled."""
    sha256 = document_sha256(load_as(KernelProfile, profile))
    profile.write_text("# a comment\n" + profile.read_text(encoding="utf-8"), encoding="utf-8")
    found, place = kernel_profile(pinning(profile, sha256), "pool.yaml")
    assert (found.spec.kernel, place) == ("fp8", profile)


def test_another_profile_is_refused_with_both_hashes(profile: Path) -> None:
    """A profile other than the pinned one is refused with its file, the expected and the found hash."""
    found = document_sha256(load_as(KernelProfile, profile))
    with pytest.raises(ProfileDiffersError) as caught:
        kernel_profile(pinning(profile, "0" * 64), "pool.yaml")
    for said in (str(profile), f"expected sha256 {'0' * 64}", f"got sha256 {found}", "kernel fp8"):
        assert said in str(caught.value)


def test_other_samples_are_refused_with_both_hashes(profile: Path) -> None:
    """Samples other than the pinned profile's are refused with file and hashes; missing ones too."""
    document = load_as(KernelProfile, profile)
    kernel = pinning(profile, document_sha256(document))
    samples = profile.with_name("fp8.npz")
    samples.write_bytes(samples.read_bytes() + b"more")
    with pytest.raises(ProfileDiffersError) as caught:
        kernel_profile(kernel, "pool.yaml")
    for said in (str(samples), f"expected sha256 {document.spec.samples.sha256}", "got sha256 "):
        assert said in str(caught.value)
    samples.unlink()
    with pytest.raises(DocumentError, match="a readable file"):
        kernel_profile(kernel, "pool.yaml")


def test_without_a_pin_any_profile_is_accepted_and_the_hash_is_unchanged(profile: Path) -> None:
    """A kernel without a pin accepts any profile, and pools without one keep their hashes."""
    kernel_profile(pinning(profile, None), "pool.yaml")
    pool = load_as(KernelPool, ROOT / "contracts" / "library" / "suites" / "e5-pool.yaml")
    assert "profile_sha256" not in pool.model_dump_json(exclude_none=True)


def test_validation_follows_the_pin(tmp_path: Path, profile: Path) -> None:
    """Validating a pool reports a profile other than the pinned one, at its line."""
    text = (
        "apiVersion: selvage.dev/v1alpha1\nkind: KernelPool\nmetadata: {name: pool}\nspec:\n  kernels:\n"
        f"    - name: fp8\n      profile: {profile.name}\n      profile_sha256: {'0' * 64}\n"
        "      replicas: 1\n      role: known_good\n  home:\n    - {slice: prose, kernel: fp8}\n"
    ).replace(f"sha256: {'0' * 64}", f"sha256: '{'0' * 64}'")
    file = tmp_path / "pool.yaml"
    file.write_text(text, encoding="utf-8")
    (problem,) = reference_problems(load_as(KernelPool, file), text, str(file))
    assert (problem.line, problem.path) == (7, "spec.kernels[0].profile")
    assert "sha256" in problem.actual
