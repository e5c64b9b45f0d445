"""Compiled passes of readings: parse numbers of a text, sum samples, and count between two readings.

One pass over the bytes of a text parses its numbers, for ``live.observe.scraper``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: What follows a line's head: text that is ignored, nothing, or a number that is read.
ANYTHING, NOTHING, NUMBER = 0, 1, 2
#: Result of ``walk`` for a text with another layout.
OTHER = -1


class Lines(NamedTuple):
    """Layout of a text of L lines, without its numbers."""

    heads: NDArray[np.uint8]
    """[bytes], the head of each line: the part before its last space, or only the sample's name."""
    head_ends: NDArray[np.int64]  # [L]
    asked: NDArray[np.int64]  # [L], number of head bytes that a line of this layout must begin with
    kinds: NDArray[np.int8]  # [L], what follows: ``ANYTHING``, ``NOTHING`` or a ``NUMBER``


_LINE_END, _MINUS, _PLUS, _POINT, _ZERO = 10, 45, 43, 46, 48
_EXPONENTS = (101, 69)
#: Integers and powers of ten up to these limits are exact as floats.
_MOST, _MOST_POWER = 2**53, 22
_POWERS = np.array([10.0**power for power in range(_MOST_POWER + 1)])


@compiled
def walk(text, lines, values, rest):
    """Parse the numbers of ``text`` uint8 [N] into ``values`` float64 [V].

    A number that needs ``float`` is left out: its index in ``values``, begin and end in ``text`` go into the
    next row of ``rest`` int64 [V, 3]. Returns the number of such rows, or ``OTHER`` if the layout is not
    ``lines``.
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
    """Whether ``length`` bytes at the two positions are equal; without an early exit, so it is vectorised."""
    if place + length > len(text):
        return False
    mine, theirs = text[place : place + length], heads[head : head + length]
    differ = 0
    for at in range(length):
        differ |= mine[at] ^ theirs[at]
    return differ == 0


@compiled
def _line_end(text, place):
    """End of the line that contains ``place``."""
    while place < len(text) and text[place] != _LINE_END:
        place += 1
    return place


@compiled
def _decimal(text, begin, end):
    """The number in ``text`` from ``begin`` to ``end``, equal to ``float``'s result.

    NaN if that takes more than one operation on exact floats, or if it is no number.
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
    """The exponent at ``place``; if there is none, a value larger than any that is read."""
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
    """The server's edges below and above each edge of the record, and its relative position between them."""

    below: NDArray[np.int64]  # [..., E + 1]
    above: NDArray[np.int64]  # [..., E + 1]
    share: NDArray[np.float64]  # [..., E + 1], in 0..1; 1: at the upper edge


#: A difference of counts above this is not a count.
_MOST_COUNTED = 2.0**53


@compiled
def add_up(numbers, values, places, ends):
    """Fill ``numbers`` float64 [N] from ``values`` float64 [V]: each is the sum at its places; NaN without
    any.

    places: int64, indices into ``values``, grouped by number; each group ends at ``ends`` int64 [N].
    """
    begin = 0
    for n in range(len(ends)):
        numbers[n] = np.nan if ends[n] == begin else values[places[begin]]
        for at in range(begin + 1, ends[n]):
            numbers[n] += values[places[at]]
        begin = ends[n]


@compiled
def count_between(engine, latency_le, before, now, rows, first, families, places):
    """Count one replica's increments from ``before`` to ``now``, float64 [N], into ``engine`` float64
    [COUNTERS] and ``latency_le`` int64 [F, E + 1]. Returns False, and counts nothing, if a counter decreased.

    rows: int64, row of ``engine`` for each counter; the counters begin at number ``first``. families: int64
    [F, 3], where the counts of each family begin in ``before`` and in ``now``, and how many are compared; a
    family with a decreased or invalid count is left out. places: ``EdgePlaces`` of the record's edges, [F, E
    + 1].
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
