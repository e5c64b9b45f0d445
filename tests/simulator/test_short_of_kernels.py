"""A fleet that cannot spare its unhealthy kernel: what it serves meanwhile and afterwards."""

from __future__ import annotations

import pytest

from scripts.studies.worlds.short import ONSET_S, REPLICA_RPS, short_episodes, short_spec, wrong_numbers

SEEDS = 2
CLEARED_S = 120.0
RATE_RPS = 8 * REPLICA_RPS


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sequential", "learned"])
def test_the_only_large_kernel_returns_as_soon_as_its_numbers_are_right(policy: str) -> None:
    """Wrong numbers for a minute: load is shed while they last, and half a minute later hardly any is."""
    wrong = {"kind": "requantise", "condition": "requantise-w3", "duration_s": CLEARED_S - ONSET_S}
    for record in short_episodes(policy, short_spec([wrong], RATE_RPS), SEEDS):
        during, after = (
            record.shed[rows].sum() / record.offered[rows].sum() for rows in (slice(90, 120), slice(150, 300))
        )
        assert during > 0.5
        assert after < 0.02


@pytest.mark.slow
def test_pauses_of_wrong_numbers_are_used() -> None:
    """Twenty of eighty seconds wrong: most of the useful tokens of fixed-bare are kept, few are exposed."""
    spec = short_spec([wrong_numbers(20.0, 80.0)], RATE_RPS)
    mine, bare = (short_episodes(policy, spec, SEEDS) for policy in ("sequential", "fixed-bare"))
    for record, unrouted in zip(mine, bare, strict=True):
        assert record.useful_tokens.sum() > 0.85 * unrouted.useful_tokens.sum()
        assert record.exposed.sum() < 0.5 * unrouted.exposed.sum()


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "seeds"), [(8, SEEDS), (2, 16)])
@pytest.mark.parametrize("policy", ["sequential", "learned"])
def test_pauses_of_seconds_are_used(policy: str, replicas: int, seeds: int) -> None:
    """Wrong for six of twenty seconds: a wait for 29 matches would use up the pauses.

    Two replicas give 28 probes in a pause and carry a quarter of the requests. One episode differs from the
    next by 0.03 of the useful tokens: their sum over all episodes is compared.
    """
    spec = short_spec([wrong_numbers(6.0, 20.0)], REPLICA_RPS * replicas, replicas)
    mine, bare = (short_episodes(name, spec, seeds) for name in (policy, "fixed-bare"))
    useful, unrouted = (sum(record.useful_tokens.sum() for record in records) for records in (mine, bare))
    assert useful > 0.88 * unrouted
    for record, other in zip(mine, bare, strict=True):
        assert record.exposed.sum() < 0.7 * other.exposed.sum()
