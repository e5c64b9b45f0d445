"""Compiled hashing of seeds: what ``numpy.random.SeedSequence`` makes of them, and chance without a state.

The algorithm of the sequence and its constants are NumPy's (``numpy/random/bit_generator.pyx``, after
M. E. O'Neill's ``seed_seq``), in a tenth of its time; a test compares the words. Fleets are begun with dozens
of streams each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from contracts.jit import compiled

_INIT_A, _MULT_A = np.uint32(0x43B0D7E5), np.uint32(0x931E8875)
_INIT_B, _MULT_B = np.uint32(0x8B51F9DD), np.uint32(0x58F38DED)
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
#: Words of the pool; a generator asks for twice as many.
_POOL = 4
_WORD_BITS = 32
_WORD = (1 << _WORD_BITS) - 1


class ReadySeed(ISeedSequence):
    """A seed sequence whose first words are known already: uint64 [4], what PCG64 asks for."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """The words; NotImplementedError for any other number or kind of them."""
        if n_words != _POOL or dtype is not np.uint64:
            raise NotImplementedError(
                f"expected {_POOL} words of 64 bits asked for, got {n_words} of {dtype}"
            )
        return self._words


def ready_seed(keys: Sequence[int]) -> Any:
    """What ``SeedSequence(keys)`` gives a PCG64, a ``ReadySeed``; keys are integers >= 0."""
    return ReadySeed(_words(np.array(_split(keys), dtype=np.uint32)).view(np.uint64))


def _split(keys: Sequence[int]) -> list[int]:
    """Every key as words of 32 bits, the lowest first; 0 is one word."""
    words = []
    for key in keys:
        rest = int(key)
        if rest < 0:
            raise ValueError(f"seed: expected integers >= 0, got {key}")
        words.append(rest & _WORD)
        while rest := rest >> _WORD_BITS:
            words.append(rest & _WORD)
    return words


@compiled
def _words(entropy):
    """uint32 [8] of ``entropy`` uint32 [n]."""
    pool, factor = np.zeros(_POOL, np.uint32), _INIT_A
    for i in range(_POOL):
        word = entropy[i] if i < entropy.size else np.uint32(0)
        pool[i], factor = _hashed(word, factor, _MULT_A)
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                word, factor = _hashed(pool[source], factor, _MULT_A)
                pool[target] = _mixed(pool[target], word)
    for source in range(_POOL, entropy.size):
        for target in range(_POOL):
            word, factor = _hashed(entropy[source], factor, _MULT_A)
            pool[target] = _mixed(pool[target], word)
    state, factor = np.zeros(2 * _POOL, np.uint32), _INIT_B
    for i in range(state.size):
        state[i], factor = _hashed(pool[i % _POOL], factor, _MULT_B)
    return state


@compiled
def _hashed(word, factor, multiplier):
    """``(word hashed, next factor)``."""
    following = np.uint32(factor * multiplier)
    word = np.uint32(np.uint32(word ^ factor) * following)
    return np.uint32(word ^ (word >> _SHIFT)), following


@compiled
def _mixed(left, right):
    word = np.uint32(np.uint32(_MIX_LEFT * left) - np.uint32(_MIX_RIGHT * right))
    return np.uint32(word ^ (word >> _SHIFT))


@compiled
def hashed_uniform(seed, stream, step):
    """A number in (0, 1) that depends on its three arguments only (splitmix64, Steele et al. 2014).

    The increment keeps arguments that are all 0 from staying 0, as splitmix64 does.
    """
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ np.uint64(stream)) * np.uint64(0xD1342543DE82EF95)
    x = x ^ (np.uint64(step) * np.uint64(0x2545F4914F6CDD1D)) ^ (x >> np.uint64(32))
    x = x + np.uint64(0x9E3779B97F4A7C15)
    for factor in (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(30))) * factor
    x = x ^ (x >> np.uint64(31))
    return (float(x >> np.uint64(11)) + 0.5) / 9007199254740992.0
