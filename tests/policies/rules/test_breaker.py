"""The breaker against a plain model of Envoy's outlier detection, one host at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.registry import make_policy
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=3)
FLEET = make_fleet(LAYOUT)


@dataclass
class Host:
    """One upstream host as the gateway keeps it."""

    ejected_at_s: float | None = None
    times: int = 0
    run: int = 0


@dataclass
class Cluster:
    """Three hosts, consecutive failures 5, interval 10 s, base 30 s, cap as given."""

    cap: float
    hosts: list[Host] = field(default_factory=lambda: [Host(), Host(), Host()])
    swept_at_s: float = -np.inf

    def step(self, now_s: float, new_failures: list[int | None]) -> list[bool]:
        """``new_failures`` per host since the last step; None: a success ended the run."""
        if now_s - self.swept_at_s >= 10.0:
            self.swept_at_s = now_s
            self.sweep(now_s)
        for host, failures in zip(self.hosts, new_failures, strict=True):
            host.run = 0 if failures is None else host.run + failures
        return [host.ejected_at_s is not None for host in self.judged(now_s)]

    def sweep(self, now_s: float) -> None:
        for host in self.hosts:
            if host.ejected_at_s is None:
                host.times = max(0, host.times - 1)
            elif now_s - host.ejected_at_s >= min(30.0 * host.times, 300.0):
                host.ejected_at_s, host.run = None, 0

    def judged(self, now_s: float) -> list[Host]:
        for host in self.hosts:
            if host.ejected_at_s is None and host.run >= 5:
                host.run = 0
                if sum(h.ejected_at_s is not None for h in self.hosts) < self.cap * 3:
                    host.ejected_at_s, host.times = now_s, host.times + 1
        return self.hosts


steps = st.lists(
    st.lists(st.sampled_from([None, 0, 1, 3]), min_size=3, max_size=3), min_size=20, max_size=120
)


@settings(max_examples=30)
@given(steps, st.sampled_from([0.1, 0.5]))
def test_breaker_is_outlier_detection(failures: list[list[int | None]], cap: float) -> None:
    """Ejections equal those of the plain model at every step, where panic does not interfere."""
    policy = make_policy("breaker", FLEET, max_ejection_ratio=cap, panic_ratio=0.0)
    state, cluster, count = policy.initial(1), Cluster(cap), [0, 0, 0]
    for index, new in enumerate(failures):
        now_s = 3.0 * index
        # An ejected host gets no traffic; failures in flight are omitted to keep the model plain.
        new = [0 if host.ejected_at_s is not None else n for host, n in zip(cluster.hosts, new, strict=True)]
        due = now_s - cluster.swept_at_s >= 10.0
        new = [0 if due and n is None else n for n in new]
        count = [0 if n is None else c + n for n, c in zip(new, count, strict=True)]
        expected = cluster.step(now_s, new)
        seen = calm(FLEET, now_s, consecutive_failed=np.array([count]))
        proposal, state = policy.propose(seen, state)
        assert proposal.ejected[0].tolist() == expected


def test_the_first_host_may_always_be_ejected_and_the_cap_holds() -> None:
    """At Envoy's default of 10 % one of three hosts is ejected and a second one is not."""
    policy = make_policy("breaker", FLEET)
    seen = calm(FLEET, consecutive_failed=np.array([[5, 5, 0]]))
    assert policy.propose(seen, policy.initial(1))[0].ejected[0].tolist() == [True, False, False]


def test_panic_sends_traffic_to_all() -> None:
    """When fewer than half of the hosts are left, none is left out."""
    policy = make_policy("breaker", FLEET, max_ejection_ratio=0.9)
    two = calm(FLEET, consecutive_failed=np.array([[5, 5, 0]]))
    proposal, state = policy.propose(two, policy.initial(1))
    assert not proposal.ejected.any()
    assert state["ejected"][0].tolist() == [True, True, False]


def test_silent_faults_are_invisible() -> None:
    """Drift, alarms and levels change nothing: the breaker reads only HTTP failures."""
    policy = make_policy("breaker", FLEET)
    seen = calm(FLEET, level=np.full((1, 1, 1), 2), certified=np.zeros((1, 1, 1), dtype=np.bool_))
    proposal, _ = policy.propose(seen, policy.initial(1))
    assert not proposal.ejected.any()
    assert proposal.table[0, 0, 0] == 1.0
