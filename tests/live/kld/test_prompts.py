"""Which prompts a comparison takes."""

from __future__ import annotations

from collections import Counter

from live.kld.prompts import kld_prompts, spread
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts


def test_prompts_are_spread_over_slices_and_no_more_than_asked() -> None:
    """The slices' positions differ by one prompt at most, and the last prompt was needed."""
    listed = load_prompts(SHIPPED_PROMPTS)
    chosen = spread(listed, 5000)
    total = sum(prompt.positions for prompt in chosen)
    assert 5000 <= total < 5000 + max(prompt.positions for prompt in listed)
    per_slice = Counter[str]()
    for prompt in chosen:
        per_slice[prompt.slice] += prompt.positions
    assert max(per_slice.values()) - min(per_slice.values()) <= max(p.positions for p in listed)
    assert len({prompt.id for prompt in chosen}) == len(chosen)


def test_all_there_are_is_the_most_that_can_be_spread() -> None:
    """Asking for more than the list has gives the list."""
    listed = load_prompts(SHIPPED_PROMPTS)[:20]
    assert spread(listed, 10**9) == listed


def test_no_number_takes_the_whole_file() -> None:
    """As do a user's own prompts where they are fewer than asked for."""
    listed = load_prompts(SHIPPED_PROMPTS)
    everything = kld_prompts(0, SHIPPED_MODEL, own=SHIPPED_PROMPTS, other_model=False)
    assert [prompt.id for prompt in everything] == [prompt.id for prompt in listed]
