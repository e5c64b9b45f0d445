"""The compiled parts of readings: the numbers of a text, sums of samples, and what was counted between two.

One walk over the bytes of a text reads its numbers, for ``live.observe.scraper``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: What a line is beside its head: anything, nothing, or a number that is read.
ANYTHING, NOTHING, NUMBER = 0, 1, 2
#: What ``walk`` returns for a text of another layout.
OTHER = -1


class Lines(NamedTuple):
    """What a text of L lines says beside its numbers."""

    heads: NDArray[np.uint8]
    """[bytes], of each line all before its last space, or its name alone."""
    head_ends: NDArray[np.int64]  # [L]
    asked: NDArray[np.int64]  # [L], bytes of the head that a line of this layout must begin with
    kinds: NDArray[np.int8]  # [L], what follows: ``ANYTHING``, ``NOTHING`` or a ``NUMBER``


_LINE_END, _MINUS, _PLUS, _POINT, _ZERO = 10, 45, 43, 46, 48
_EXPONENTS = (101, 69)
#: Integers up to here, and powers of ten up to that one, are floats without rounding.
_MOST, _MOST_POWER = 2**53, 22
_POWERS = np.array([10.0**power for power in range(_MOST_POWER + 1)])


@compiled
def walk(text, lines, values, rest):
    """Read ``text`` uint8 [N]: its numbers into ``values`` float64 [V].

    A number that only ``float`` reads is left: its place in ``values``, begin and end in ``text`` go into the
    next row of ``rest`` int64 [V, 3]. Returns how many are left, ``OTHER`` for another layout than ``lines``.
    """
    heads, head_ends, asked, kinds = lines.heads, lines.head_ends, lines.asked, lines.kinds
    place, head, number, left = 0, 0, 0, 0
    for line in range(len(head_ends)):
        length = head_ends[line] - head
        if not _same(text, place, heads, head, length):
            length = asked[line]
            if not _same(text, place, heads, head, length):
                return OTHER
        place, head = place + length, head_ends[line]
        if kinds[line] == NUMBER:
            end = _line_end(text, place)
            values[number] = _decimal(text, place, end)
            if np.isnan(values[number]):
                rest[left, 0], rest[left, 1], rest[left, 2] = number, place, end
                left += 1
            number += 1
            place = end
        elif kinds[line] == ANYTHING:
            place = _line_end(text, place)
        last = line == len(head_ends) - 1
        if (place == len(text)) != last or (not last and text[place] != _LINE_END):
            return OTHER
        place += 1
    return left


@compiled
def _same(text, place, heads, head, length):
    """Whether ``length`` bytes from the two places on are equal; without an early end it is vectorised."""
    if place + length > len(text):
        return False
    mine, theirs = text[place : place + length], heads[head : head + length]
    differ = 0
    for at in range(length):
        differ |= mine[at] ^ theirs[at]
    return differ == 0


@compiled
def _line_end(text, place):
    """Where the line at ``place`` ends."""
    while place < len(text) and text[place] != _LINE_END:
        place += 1
    return place


@compiled
def _decimal(text, begin, end):
    """The number in ``text`` from ``begin`` to ``end`` as ``float`` reads it; NaN where that takes more than
    one operation on exact floats, or it is no number.
    """
    place, negative = begin, begin < end and text[begin] == _MINUS
    place += negative
    mantissa, digits, power = 0, 0, 0
    pointed = False
    while place < end:
        byte = text[place]
        if _ZERO <= byte < _ZERO + 10:
            mantissa = 10 * mantissa + (np.int64(byte) - _ZERO)
            digits += 1
            power -= pointed
            if mantissa > _MOST:
                return np.nan
        elif byte == _POINT and not pointed:
            pointed = True
        else:
            break
        place += 1
    if digits == 0:
        return np.nan
    if place < end:
        exponent = _exponent(text, place, end)
        if exponent > 2 * _MOST_POWER:
            return np.nan
        power += exponent
    if abs(power) > _MOST_POWER:
        return np.nan
    found = mantissa * _POWERS[power] if power >= 0 else mantissa / _POWERS[-power]
    return -found if negative else found


@compiled
def _exponent(text, place, end):
    """The power of ten at ``place``; more than any that is read where it is none."""
    none = 4 * _MOST_POWER
    if text[place] != _EXPONENTS[0] and text[place] != _EXPONENTS[1]:
        return none
    place += 1
    negative = place < end and text[place] == _MINUS
    place += place < end and (text[place] == _MINUS or text[place] == _PLUS)
    if place == end or end - place > 3:
        return none
    found = 0
    while place < end:
        if not _ZERO <= text[place] < _ZERO + 10:
            return none
        found = 10 * found + (np.int64(text[place]) - _ZERO)
        place += 1
    return -found if negative else found


class EdgePlaces(NamedTuple):
    """Between which counts of a server those of the record lie, and how far from the lower to the upper."""

    below: NDArray[np.int64]  # [..., E + 1]
    above: NDArray[np.int64]  # [..., E + 1]
    share: NDArray[np.float64]  # [..., E + 1], in 0..1; 1: the upper one


#: More answers than this between two scrapes are no count.
_MOST_COUNTED = 2.0**53


@compiled
def add_up(numbers, values, places, ends):
    """``numbers`` float64 [N] of ``values`` float64 [V]: each the sum over its places, NaN without any.

    places: int64, of values, number by number; those of each end at ``ends`` int64 [N].
    """
    begin = 0
    for n in range(len(ends)):
        numbers[n] = np.nan if ends[n] == begin else values[places[begin]]
        for at in range(begin + 1, ends[n]):
            numbers[n] += values[places[at]]
        begin = ends[n]


@compiled
def count_between(engine, latency_le, before, now, rows, first, families, places):
    """What one replica counted from ``before`` to ``now``, float64 [N], into ``engine`` float64 [COUNTERS]
    and ``latency_le`` int64 [F, E + 1]. False, and nothing is counted, where a counter fell.

    rows: int64, row of ``engine`` of each counter; they stand in the numbers from ``first`` on.
    families: int64 [F, 3], where the counts of each begin in ``before`` and in ``now``, and how many are
    compared; one in which a count fell, or is none, is left out.
    places: ``EdgePlaces`` of the edges of the record, [F, E + 1].
    """
    places = borrowed(EdgePlaces(*places))
    for n in range(len(rows)):
        if now[first + n] - before[first + n] < 0.0:
            return False
    for n in range(len(rows)):
        engine[rows[n]] = now[first + n] - before[first + n]
    for f in range(len(families)):
        old, new, counts = families[f]
        known = counts > 0
        for at in range(counts):
            known = known and 0.0 <= now[new + at] - before[old + at] < _MOST_COUNTED
        for at in range(places.share.shape[1] if known else 0):
            below, above = places.below[f, at], places.above[f, at]
            low, high = now[new + below] - before[old + below], now[new + above] - before[old + above]
            latency_le[f, at] = np.int64(np.ceil(low + places.share[f, at] * (high - low)))
    return True
