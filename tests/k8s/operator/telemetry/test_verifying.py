"""Verification of returning pods: against generations of the reference, fetched once, outside the tick."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path
from typing import cast

import httpx
import pytest

from contracts.telemetry import ReplicaState
from controller.healing.records import Flush
from k8s.operator.pods.replicas import PodDiscovery
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.operator.telemetry.verifying import AGAIN_S, ReferenceVerifier
from live.errors import LiveError
from live.measure.endpoint import Endpoint
from live.ports import LiveReplica
from live.run.options import ProbeOptions, ReturnOptions
from live.run.readmission import ReferenceSource
from tests.support.servers.generating import GOLDEN, FakeServer


class There:
    """The part of a source's view that a verifier needs: one pod."""

    @property
    def discovery(self) -> PodDiscovery:
        """Itself."""
        return cast(PodDiscovery, self)

    def replicas(self) -> tuple[LiveReplica, ...]:
        """One replica."""
        return (LiveReplica(name="fp8-0", kernel="fp8", url="http://pod", state=ReplicaState.READY),)


def verifier_of(*, unflushed: bool = True) -> ReferenceVerifier:
    """A verifier of one pool."""
    return ReferenceVerifier(ReturnOptions(verify_probes=4), cast(Sensing, There()), unflushed=unflushed)


def source(folder: Path, server: FakeServer) -> ReferenceSource:
    """``server`` as the reference."""
    transport = httpx.MockTransport(server.respond)
    endpoint = Endpoint(url="http://reference", model="m", transport=transport)
    return ReferenceSource(prompts=GOLDEN, endpoint=endpoint, store=folder, kernel="bf16")


def asked(verifier: ReferenceVerifier, known: ReferenceSource | None, now_s: float) -> None:
    """Run turns until the reference's answers are received."""
    verifier.turn(now_s, lambda: known, ProbeOptions())
    if verifier._asked is not None:
        wait([verifier._asked])
    verifier.turn(now_s, lambda: None, ProbeOptions())


def test_a_pod_that_answers_users_wrongly_from_its_cache_does_not_agree(tmp_path: Path) -> None:
    """A pod that is right when cold but wrong from its cache is not verified; a healthy pod is."""
    verifier = verifier_of()
    with pytest.raises(LiveError, match="nothing yet"):
        verifier.mender("fp8-0")
    asked(verifier, source(tmp_path, FakeServer()), 0.0)
    assert verifier.ready
    for damage, good in ((lambda _: False, True), (lambda facts: facts.hit, False)):
        verifier.serve(FakeServer(damage=damage).client(), "m")
        found, told = verifier.mender("fp8-0").probe(0)
        assert (found, bool(told)) == (good, not good)
    with pytest.raises(LiveError, match="no such replica"):
        verifier.mender("fp8-1").line()


def test_a_reference_that_does_not_generate_is_reported_and_retried(tmp_path: Path) -> None:
    """The reference's failure is the reason; it is asked again after ``AGAIN_S``, not before."""
    verifier, broken = verifier_of(), FakeServer(cuts=2)
    asked(verifier, source(tmp_path, broken), 0.0)
    assert not verifier.ready
    assert "did not end well" in verifier.unverified
    count = len(broken.asked)
    asked(verifier, source(tmp_path, broken), AGAIN_S - 1.0)
    assert len(broken.asked) == count
    asked(verifier, source(tmp_path, FakeServer()), AGAIN_S)
    assert (verifier.ready, verifier.unverified) == (True, "")


@pytest.mark.parametrize(("unflushed", "expected"), [(True, Flush.NOT_OFFERED), (False, Flush.FAILED)])
def test_a_server_without_a_flush_is_verified_as_it_is_unless_it_is_to_be_flushed_first(
    unflushed: bool, expected: Flush, tmp_path: Path
) -> None:
    """Without a flush, the cache is reported as not flushed, or the pod stays out until a restart."""
    verifier = verifier_of(unflushed=unflushed)
    asked(verifier, source(tmp_path, FakeServer()), 0.0)
    verifier.serve(httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(404))), "m")
    assert verifier.mender("fp8-0").flush()[0] is expected
