"""Readings of servers whose ``/metrics`` look alike scrape after scrape: only the numbers are parsed again.

A layout is what a text says beside the numbers: of every line its sample's name, and of the lines that are
read all before the value. Where a text has the layout of the one before it, its values are cut out of the
lines; every other text is parsed, and refused, as a whole (``live.observe.metrics``). Both ways give equal
readings for any text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from prometheus_client.samples import Sample

from live.exposition import read_samples
from live.observe.metrics import EngineReading, ReadFields, fields_of, is_read

#: Servers whose layout is remembered; all of them are looked at anew where there are more.
MOST_SERVERS = 20_000
#: Head of a line whose value is all that follows; names in braces with other braces are parsed each time.
_HEAD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}#]*\})? ")
#: Values that ``float`` and the parser of the format read alike.
_NUMBERS = re.compile(r"[-+.0-9eE\n]+")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Layout:
    """What does not change from scrape to scrape."""

    heads: tuple[str, ...]
    """Of each line: up to its value where it is read, else up to the end of its name."""
    bare: tuple[int, ...]
    """Lines that are nothing but their head."""
    read: tuple[tuple[int, int], ...]
    """Line and length of its head, of those that are read."""
    fields: ReadFields

    def values(self, text: str) -> list[float] | None:
        """Values of the lines that are read; None for a text of another layout."""
        lines, heads = text.split("\n"), self.heads
        if len(lines) != len(heads) or not all(map(str.startswith, lines, heads)):
            return None
        told = [lines[at][length:] for at, length in self.read]
        if any(lines[at] != heads[at] for at in self.bare) or not _NUMBERS.fullmatch("\n".join(told)):
            return None
        try:
            found = [float(one) for one in told]
        except ValueError:
            return None
        return found if math.isfinite(sum(found)) else None


class LayoutReader:
    """Reads texts of many servers, from any thread; servers of one layout share it."""

    def __init__(self) -> None:
        self._of_server: dict[str, Layout] = {}
        self._known: WeakValueDictionary[tuple[str, ...], Layout] = WeakValueDictionary()

    def read(self, server: str, text: str, read_at_s: float) -> EngineReading:
        """The reading in ``text`` of ``server``; LiveError where it is no Prometheus exposition."""
        layout = self._of_server.get(server)
        values = None if layout is None else layout.values(text)
        if layout is not None and values is not None:
            return layout.fields.reading(values, read_at_s)
        lines = text.split("\n")
        read = [at for at, line in enumerate(lines) if is_read(line)]
        samples = read_samples("\n".join([lines[at] for at in read]) or text)
        fields = fields_of(samples)
        self._remember(server, _layout(lines, read, fields), text, samples)
        return fields.reading([float(one.value) for one in samples], read_at_s)

    def _remember(self, server: str, found: Layout | None, text: str, samples: Sequence[Sample]) -> None:
        """``found`` for the next text of ``server``, where it tells the values that ``text`` holds."""
        if len(self._of_server) >= MOST_SERVERS:
            self._of_server.clear()
        if found is None or found.values(text) != [float(one.value) for one in samples]:
            self._of_server.pop(server, None)
            return
        self._of_server[server] = self._known.setdefault(found.heads, found)


def _layout(lines: Sequence[str], read: Sequence[int], fields: ReadFields) -> Layout | None:
    """The layout of ``lines``, of which ``read`` are read; None where only a whole parse tells the values."""
    heads = [_name(line) for line in lines]
    for at in read:
        heads[at] = lines[at].rpartition(" ")[0] + " "
    if not read or not all(_HEAD.fullmatch(heads[at]) for at in read):
        return None
    return Layout(
        heads=tuple(heads),
        bare=tuple(at for at, line in enumerate(lines) if line == heads[at]),
        read=tuple((at, len(heads[at])) for at in read),
        fields=fields,
    )


def _name(line: str) -> str:
    """The name that ``line`` begins with and the character that ends it."""
    return line[: len(line.partition("{")[0].partition(" ")[0]) + 1]
