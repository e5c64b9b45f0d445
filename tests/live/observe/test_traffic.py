"""Counts of the gateway: nothing is lost, nothing counts twice, a hang is not mistaken for calm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import LATENCY_FAMILIES
from live.observe.traffic import TrafficCounter
from live.ports import GatewayAttempt, GatewayRequest, GatewaySample, HostCounters

LAYOUT = FleetLayout(
    kernels=("a", "b"),
    slices=("prose", "sql"),
    replicas=("a-0", "a-1", "b-0"),
    replica_kernel=np.array([0, 0, 1]),
    probe_metrics=(),
    known_good=0,
)

attempts = st.lists(
    st.builds(
        GatewayAttempt,
        started_at_s=st.floats(0.0, 10.0),
        slice=st.sampled_from(["prose", "sql", "unknown"]),
        replica=st.sampled_from(["a-0", "a-1", "b-0", "gone"]),
        code=st.sampled_from([0, 200, 400, 429, 500, 503]),
        first_byte_ms=st.none() | st.floats(0.1, 100.0),
        duration_ms=st.floats(100.0, 1e5),
        flags=st.just(""),
        shadow=st.booleans(),
    ),
    max_size=30,
)


def sample(attempts: list[GatewayAttempt] = [], ended: int = 0, active: int | None = None) -> GatewaySample:  # noqa: B006
    """A sample with this many ended requests of ``prose``, and this many open ones."""
    request = GatewayRequest(
        started_at_s=0.0,
        slice="prose",
        code=200,
        shed=False,
        replica="a-0",
        attempts=1,
        duration_ms=1.0,
        flags="",
    )
    host = HostCounters(
        slice="prose",
        replica="a-0",
        weight=1,
        active=active or 0,
        succeeded=0,
        failed=0,
        connect_failed=0,
        ejected=False,
    )
    return GatewaySample(
        read_at_s=0.0,
        requests=(request,) * ended,
        attempts=tuple(attempts),
        hosts=() if active is None else (host,),
        unreadable=0,
    )


@given(attempts)
def test_every_attempt_counts_once_by_slice_and_once_by_replica(found: list[GatewayAttempt]) -> None:
    """Sums over slices and kernels are those over replicas; mirrored and unknown rows count nowhere."""
    traffic = TrafficCounter(LAYOUT).count(sample(found))
    known = [a for a in found if a.slice != "unknown" and a.replica != "gone" and not a.shadow]
    assert traffic.answered.sum() == traffic.replica_answered.sum() == sum(a.code == 200 for a in known)
    assert traffic.failed.sum() == traffic.replica_failed.sum() == sum(a.code in (0, 500, 503) for a in known)
    assert (traffic.latency_le[:, :, LATENCY_FAMILIES.index("latency_ms"), -1] == traffic.answered).all()


@given(attempts)
def test_clients_errors_and_refusals_are_no_fault_of_a_replica(found: list[GatewayAttempt]) -> None:
    """Codes from 400 to 499 count neither as answered nor as failed."""
    clients = [a for a in found if 400 <= a.code < 500]
    traffic = TrafficCounter(LAYOUT).count(sample(clients))
    assert not traffic.answered.any()
    assert not traffic.failed.any()


def test_requests_under_way_are_offered_when_they_come_not_when_they_end() -> None:
    """A hanging replica does not hide the offered load."""
    counter = TrafficCounter(LAYOUT)
    seen = [counter.count(sample(ended=e, active=a)).offered[0] for e, a in ((0, 5), (0, 9), (9, 0), (3, 0))]
    assert seen == [5, 4, 0, 3]


def test_an_answer_in_one_piece_shows_no_first_token() -> None:
    """Time to the first token comes from streams alone."""
    whole = GatewayAttempt(
        started_at_s=0.0,
        slice="prose",
        replica="a-0",
        code=200,
        first_byte_ms=499.5,
        duration_ms=500.0,
        flags="",
        shadow=False,
    )
    at = LATENCY_FAMILIES.index("ttft_ms")
    assert TrafficCounter(LAYOUT).count(sample([whole])).latency_le[0, 0, at, -1] == 0


def test_failures_in_a_row_end_with_an_answer() -> None:
    """Counted in the order in which attempts ended."""
    counter = TrafficCounter(LAYOUT)
    rows = _tries((503, 0, 200, 500))
    counter.count(sample(rows[:2]))
    assert counter.consecutive_failed.tolist() == [2, 0, 0]
    counter.count(sample(rows[2:]))
    assert counter.consecutive_failed.tolist() == [1, 0, 0]


def _tries(codes: Sequence[int]) -> list[GatewayAttempt]:
    """Tries at a replica that ended one after the other."""
    return [
        GatewayAttempt(
            started_at_s=float(at),
            slice="prose",
            replica="a-0",
            code=code,
            first_byte_ms=None,
            duration_ms=1.0,
            flags="",
            shadow=False,
        )
        for at, code in enumerate(codes)
    ]


def test_what_the_gateways_own_end_cut_off_is_no_failure_of_a_replica() -> None:
    """While the gateway is absent, and after its restart, tries without an answer count nowhere; errors
    that replicas answered do.
    """
    counter = TrafficCounter(LAYOUT)
    down = replace(sample(_tries((0, 0, 503))), whole=False)
    assert counter.count(down).replica_failed.tolist() == [1, 0, 0]
    anew = replace(sample(_tries((0, 0)), active=0), whole=False)
    assert counter.count(anew).failed.sum() == 0
    assert counter.consecutive_failed.tolist() == [1, 0, 0]
    assert counter.count(sample(_tries((0,)))).replica_failed.tolist() == [1, 0, 0]


def test_nothing_waits_at_replicas_while_there_is_no_gateway() -> None:
    """Requests open at its end neither wait at a replica nor count against later ones."""
    counter = TrafficCounter(LAYOUT)
    counter.count(sample(active=5))
    assert counter.open.tolist() == [5.0, 0.0, 0.0]
    counter.count(replace(sample(), whole=False))
    assert counter.open.tolist() == [0.0, 0.0, 0.0]
    assert not counter.told
    assert counter.count(replace(sample(active=2), whole=False)).offered[0] == 2
    assert counter.count(sample(ended=2, active=0)).offered[0] == 0


def test_a_gateway_that_says_nothing_for_long_has_nothing_open() -> None:
    """Its open requests stand for a few samples, then they are unknown."""
    counter = TrafficCounter(LAYOUT)
    seen = []
    for active in (5, None, None, None, None):
        counter.count(sample(active=active))
        seen.append(counter.open[0])
    assert seen == [5.0, 5.0, 5.0, 5.0, 0.0]
