"""The slow return: dwell, half-open steps, rate limit, relapses, a failover target that stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.contract import Level
from controller.ports import Observation
from policies.registry import make_policy
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm, unhealthy

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
FLEET = make_fleet(LAYOUT)
SPEC = "hysteresis:guard_share=0.5,dwell_s=60,first_ratio=0.1,step_ratio=0.3,step_s=20,readmit_every_s=10"


def home_shares(observations: list[Observation], spec: str = SPEC) -> np.ndarray:
    """float64 [T, S]: weight that each slice keeps at home."""
    return tables(observations, spec)[:, :, 0]


def tables(observations: list[Observation], spec: str = SPEC) -> np.ndarray:
    """Proposed tables [T, S, K + 1]."""
    policy, rows = make_policy(spec, FLEET), []
    state = policy.initial(1)
    for seen in observations:
        proposal, state = policy.propose(seen, state)
        rows.append(proposal.table[0])
    return np.stack(rows)


def story(
    ticks: int, unhealthy_from: int, unhealthy_until: int, slices: tuple[int, ...] = (0,)
) -> list[Observation]:
    """One observation per second; home is unhealthy on ``slices`` in the interval."""
    out = []
    for index in range(ticks):
        seen = calm(FLEET, float(index))
        for slice_ in slices if unhealthy_from <= index < unhealthy_until else ():
            seen = unhealthy(seen, 0, slice_, Level.FALLBACK)
        out.append(seen)
    return out


def test_a_slice_leaves_at_once_and_returns_in_steps_after_the_dwell() -> None:
    """Share at home: 1, 0 from the alarm, then 0.1, 0.4, 0.7, 1 at the stated times."""
    shares = home_shares(story(160, 10, 20))[:, 0]
    assert (shares[:10] == 1.0).all()
    assert (shares[10:79] == 0.0).all()
    np.testing.assert_allclose(shares[[79, 98, 99, 118, 119, 139]], [0.1, 0.1, 0.4, 0.4, 0.7, 1.0])
    assert (np.diff(shares[79:]) >= 0.0).all()


def test_no_return_without_recertification() -> None:
    """The end of an alarm is no certificate: the slice stays where it is."""
    observations = story(300, 10, 20)
    waiting = [replace(seen, certified=seen.certified & False) for seen in observations[20:]]
    assert (home_shares(observations[:20] + waiting)[20:, 0] == 0.0).all()


def test_after_an_outage_of_all_kernels_a_slice_is_home_at_once() -> None:
    """Home fails, then every kernel, and all return together: no other kernel was any better."""
    observations = story(120, 10, 40)
    for index in range(20, 40):
        observations[index] = replace(observations[index], certified=observations[index].certified & False)
    shares = home_shares(observations)[:, 0]
    assert (shares[10:40] == 0.0).all()
    assert (shares[40:] == 1.0).all()


def test_guard_keeps_its_share_and_returns_from_there() -> None:
    """Level guard leaves 1 - guard_share at home; the return starts from that."""
    observations = [
        unhealthy(seen, 0, 0, Level.GUARD) if 10 <= index < 20 else seen
        for index, seen in enumerate(story(120, 0, 0))
    ]
    shares = home_shares(observations)[:, 0]
    assert (shares[10:79] == 0.5).all()
    np.testing.assert_allclose(shares[[79, 99, 119]], [0.6, 0.9, 1.0])


def test_a_relapse_doubles_the_dwell() -> None:
    """An alarm during the return makes the slice leave at once and wait twice as long."""
    later = [replace(seen, now_s=seen.now_s + 85.0) for seen in story(150, 0, 0)]
    relapse = [unhealthy(seen, 0, 0, Level.FALLBACK) for seen in later[:5]]
    shares = home_shares(story(85, 10, 20) + relapse + later[5:])[:, 0]
    assert shares[84] == pytest.approx(0.1)
    last_unhealthy = 85 + 4
    assert (shares[85 : last_unhealthy + 120] == 0.0).all()
    assert shares[last_unhealthy + 120] == pytest.approx(0.1)


def test_slices_of_a_kernel_return_one_after_the_other() -> None:
    """At most one slice of a kernel starts to return in ``readmit_every_s``."""
    shares = home_shares(story(100, 10, 20, slices=(0, 1)))
    begins = [int(np.argmax(shares[20:, s] > 0.0)) + 20 for s in range(2)]
    assert begins == [79, 89]


def test_the_failover_target_stays_while_it_complies() -> None:
    """A kernel that becomes slightly better than the failover target does not attract the slice."""
    observations = story(40, 10, 40)
    for index in range(10, 40):
        health = observations[index].health.copy()
        health[:, 2 if index % 2 else 1, 0] += 0.01
        observations[index] = replace(observations[index], health=health)
    moved = tables(observations)[10:, 0, 1:]
    assert (moved == moved[0]).all()


def test_flapping_health_moves_a_slice_once() -> None:
    """An alarm that comes and goes every minute: threshold moves each time, hysteresis moves once."""
    observations = [
        unhealthy(seen, 0, 0, Level.FALLBACK, certified=True) if (index // 30) % 2 else seen
        for index, seen in enumerate(story(600, 0, 0))
    ]
    moves = {
        name: int((np.abs(np.diff(tables(observations, name)[:, 0], axis=0)).sum(axis=1) > 0.0).sum())
        for name in ("threshold", SPEC)
    }
    assert moves["threshold"] == 19
    assert moves[SPEC] == 1
