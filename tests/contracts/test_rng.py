"""Named random streams: NumPy's own seeding, done faster."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rng import stream
from contracts.seed_hashing import ready_seed

KEYS = st.lists(st.integers(0, 2**80), min_size=1, max_size=7)


@given(keys=KEYS)
def test_words_are_those_of_numpy(keys: list[int]) -> None:
    """For any numbers, a PCG64 gets the words that ``SeedSequence`` would give it."""
    expected = np.random.SeedSequence(keys).generate_state(4, np.uint64)
    assert ready_seed(keys).generate_state(4, np.uint64).tolist() == expected.tolist()


@given(seed=st.integers(0, 2**64), name=st.text(max_size=8), number=st.integers(0, 100))
def test_a_stream_is_seeded_by_seed_and_names(seed: int, name: str, number: int) -> None:
    """Seed, the name's CRC-32 and the number, in this order, seed a PCG64."""
    keys = [seed, zlib.crc32(name.encode()), number]
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(keys)))
    assert stream(seed, name, number).random(3).tolist() == expected.random(3).tolist()


def test_unsupported_seeds_are_refused() -> None:
    """Negative numbers, and words of another number or size, are refused."""
    with pytest.raises(ValueError, match="integers >= 0"):
        stream(-1, "arrivals")
    with pytest.raises(NotImplementedError, match="4 words"):
        ready_seed([1]).generate_state(8, np.uint32)
