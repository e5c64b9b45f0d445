"""The schedule: never over budget, one in flight, slices in turn, the same from the same seed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.probe.schedule import Due, ProbeBudget, ProbePrompt, ProbeSchedule

prompts = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 500)), min_size=1, max_size=12).map(
    lambda rows: [ProbePrompt(s, place, tokens) for place, (s, tokens) in enumerate(rows)]
)


def run(schedule: ProbeSchedule, ticks: int, lasts: int = 0) -> list[tuple[float, Due]]:
    """Probes sent in this many seconds, each probe lasting ``lasts`` of them."""
    sent: list[tuple[float, Due]] = []
    ends: list[tuple[int, str]] = []
    for tick in range(ticks):
        for replica in [name for at, name in ends if at == tick]:
            schedule.done(replica)
        for due in schedule.due(float(tick)):
            sent.append((float(tick), due))
            ends.append((tick + 1 + lasts, due.replica))
    return sent


@given(prompts, st.floats(1.0, 500.0), st.floats(0.0, 1.0), st.integers(0, 2**31))
def test_no_replica_is_ever_probed_over_its_budget(
    given_prompts: list[ProbePrompt], tokens_per_s: float, jitter: float, seed: int
) -> None:
    """In every stretch of time the tokens sent are at most the budget's and two prompts more: the prompt that
    is paid for afterwards, and the prompt that was due before and came late.
    """
    budget = ProbeBudget(tokens_per_s=tokens_per_s, jitter_ratio=jitter)
    sent = run(ProbeSchedule(["a", "b"], given_prompts, budget, seed=seed, began_at_s=0.0), 120)
    for replica in ("a", "b"):
        own = [(at, due.prompt.tokens) for at, due in sent if due.replica == replica]
        late = (1.0 + jitter) * max(one.tokens for one in given_prompts)
        for first in range(len(own)):
            spent = 0
            for at, tokens in own[first:]:
                assert spent <= tokens_per_s * (at - own[first][0]) + late + 1e-6
                spent += tokens


@given(st.floats(1.0, 5.0), st.integers(0, 2**31))
def test_late_turns_do_not_reduce_the_rate_of_probes(wait_s: float, seed: int) -> None:
    """With one turn per second a due probe is up to a second late; that takes nothing from the budget."""
    budget = ProbeBudget(tokens_per_s=100.0 / wait_s, jitter_ratio=0.0)
    sent = run(ProbeSchedule(["a"], [ProbePrompt(0, 0, 100)], budget, seed=seed, began_at_s=0.0), 300)
    assert abs(len(sent) - 300.0 / wait_s) <= 2.0


@given(prompts, st.integers(0, 5), st.integers(0, 2**31))
def test_slices_take_turns_and_one_probe_flies(
    given_prompts: list[ProbePrompt], lasts: int, seed: int
) -> None:
    """Counts of slices differ by at most one per replica, and no probe begins before the last one ended."""
    budget = ProbeBudget(tokens_per_s=1e6, jitter_ratio=0.0)
    sent = run(ProbeSchedule(["a"], given_prompts, budget, seed=seed, began_at_s=0.0), 60, lasts)
    slices = {one.slice for one in given_prompts}
    counts = [sum(due.prompt.slice == s for _, due in sent) for s in slices]
    assert max(counts) - min(counts) <= 1
    times = [at for at, _ in sent]
    assert all(later - earlier > lasts for earlier, later in itertools.pairwise(times))


@given(prompts, st.integers(0, 2**31))
def test_equal_seeds_give_equal_probes(given_prompts: list[ProbePrompt], seed: int) -> None:
    """Only the seed decides, and no prompt of a slice is left out."""
    budget = ProbeBudget(tokens_per_s=200.0)
    runs = [
        run(ProbeSchedule(["a", "b"], given_prompts, budget, seed=seed, began_at_s=0.0), 300) for _ in "12"
    ]
    assert runs[0] == runs[1]


def test_a_budget_of_nothing_is_refused() -> None:
    """So is an empty fleet or list."""
    with pytest.raises(ValueError, match="tokens_per_s > 0"):
        ProbeBudget(tokens_per_s=0.0)
    with pytest.raises(ValueError, match="expected replicas and prompts"):
        ProbeSchedule([], [], ProbeBudget(tokens_per_s=1.0), seed=0, began_at_s=0.0)


@given(prompts, st.floats(0.1, 1.0), st.integers(0, 2**31))
def test_a_slower_pace_is_a_smaller_budget(given_prompts: list[ProbePrompt], pace: float, seed: int) -> None:
    """At a part of the pace a replica is sent at most that part of the budget and two prompts more; another
    replica is sent as much as before.
    """
    budget = ProbeBudget(tokens_per_s=50.0, jitter_ratio=0.0)
    schedule = ProbeSchedule(["a", "b"], given_prompts, budget, seed=seed, began_at_s=0.0)
    spent: dict[str, list[tuple[float, int]]] = {"a": [], "b": []}
    for tick in range(400):
        for due in schedule.due(float(tick), pace=lambda name: pace if name == "a" else 1.0):
            spent[due.replica].append((float(tick), due.prompt.tokens))
            schedule.done(due.replica)
    for name, part in (("a", pace), ("b", 1.0)):
        asked = sum(tokens for _, tokens in spent[name][:-1])
        late = max(one.tokens for one in given_prompts)
        last_s = spent[name][-1][0] - spent[name][0][0] if spent[name] else 0.0
        assert asked <= part * 50.0 * last_s + late + 1e-6
    alone = ProbeSchedule(["a", "b"], given_prompts, budget, seed=seed, began_at_s=0.0)
    assert [tokens for _, tokens in spent["b"]] == [
        due.prompt.tokens for _, due in run(alone, 400) if due.replica == "b"
    ]
