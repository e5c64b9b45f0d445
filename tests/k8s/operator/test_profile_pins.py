"""A pool that pins its profiles, on a real API server: a profile with another hash is not used."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest

from contracts.documents import KernelProfile
from contracts.loading.loader import document_sha256, load_as
from tests.support.cluster.cluster_worlds import Bench, Object
from tests.support.paths import ROOT

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

PROFILES = ROOT / "contracts" / "library" / "profiles"


def pinned(bench: Bench, folder: Path, sha256: str) -> list[Object]:
    """The pool's kernels, the first one with the profile in ``folder`` and the given pin."""
    kernels = copy.deepcopy(bench.read("KernelPool", "chat-pool")["spec"]["kernels"])
    kernels[0] |= {"profile": str(folder / "fp8.yaml"), "profile_sha256": sha256}
    return list(kernels)


@pytest.mark.parametrize("differs", ["profile", "samples", "nothing"])
def test_a_differing_profile_is_reported_and_the_last_good_configuration_stays(
    bench: Bench, tmp_path: Path, differs: str
) -> None:
    """A profile or samples with another hash are reported with both hashes; the old pool stays in force."""
    for name in ("fp8.yaml", "fp8.npz"):
        shutil.copy(PROFILES / name, tmp_path / name)
    sha256 = document_sha256(load_as(KernelProfile, tmp_path / "fp8.yaml"))
    if differs == "samples":
        (tmp_path / "fp8.npz").write_bytes(b"others")
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 4)
    before = operator.loops["chat"]
    pin = "0" * 64 if differs == "profile" else sha256
    bench.change("KernelPool", "chat-pool", {"kernels": pinned(bench, tmp_path, pin)})
    operator.nudge()
    bench.turns(operator, 3)
    found = bench.conditions()
    if differs == "nothing":
        assert found["ResolvedRefs"][0] == "True"
        assert operator.loops["chat"] is not before
        return
    assert found["ResolvedRefs"] == ("False", "ProfileDiffers")
    assert found["Degraded"] == ("True", "LastGoodConfiguration")
    assert operator.loops["chat"] is before
    conditions = bench.read("RoutePolicy", "chat")["status"]["conditions"]
    (message,) = (one["message"] for one in conditions if one["type"] == "ResolvedRefs")
    assert str(tmp_path / ("fp8.npz" if differs == "samples" else "fp8.yaml")) in message
    assert "expected sha256 " in message
    assert "got sha256 " in message
