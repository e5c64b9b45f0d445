"""The worker of ``tests.hostile.fuzzing``: reads mutated files and reports its progress in shared memory."""

from __future__ import annotations

import os
import resource
import time
import traceback
import warnings
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from contracts.errors import SelvageError
from contracts.rng import stream
from tests.hostile import mutations
from tests.hostile.readers import Reader
from tests.support.paths import ROOT

_FIELDS = ("number", "began_at_s", "held_bytes", "done", "refused", "longest_s", "grown_bytes", "finished")


class Mark:
    """Progress of a worker: numbers in memory shared by worker and parent.

    number: of the mutation under way, -1 before the first. began_at_s: when it began (``clock_s``), 0
    between two. held_bytes: memory at the start. The others add up over all workers of a lane.
    """

    def __init__(self, processes: Any) -> None:
        self._values: Any = processes.RawArray("d", len(_FIELDS))

    def begin(self) -> None:
        """A new worker begins."""
        self._set(number=-1.0, began_at_s=0.0, held_bytes=0.0)

    def reads(self, number: int) -> None:
        """The mutation ``number`` begins."""
        self._set(number=number, began_at_s=clock_s())

    def count_one(self, refused: bool = False, seconds: float = 0.0, grown_bytes: int = 0) -> None:
        """One mutation is done."""
        self._set(
            began_at_s=0.0,
            done=self.done + 1,
            refused=self.refused + refused,
            longest_s=max(self.longest_s, seconds),
            grown_bytes=max(self.grown_bytes, grown_bytes),
        )

    def ready(self, held_bytes: int) -> None:
        """The good files were read."""
        self._set(held_bytes=held_bytes)

    def finish(self) -> None:
        """All mutations were read."""
        self._set(finished=1.0)

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            self._values[_FIELDS.index(name)] = value

    @property
    def number(self) -> int:
        """Number of the mutation being read or last read."""
        return int(self._values[0])

    @property
    def began_at_s(self) -> float:
        """Begin of the present mutation; 0 between two."""
        return float(self._values[1])

    @property
    def held_bytes(self) -> int:
        """Memory at the start; 0 until then."""
        return int(self._values[2])

    @property
    def done(self) -> int:
        """Mutations that were read, refused or found wrong."""
        return int(self._values[3])

    @property
    def refused(self) -> int:
        """Mutations that were refused as expected."""
        return int(self._values[4])

    @property
    def longest_s(self) -> float:
        """Of one mutation."""
        return float(self._values[5])

    @property
    def grown_bytes(self) -> int:
        """Most memory beyond the start."""
        return int(self._values[6])

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return bool(self._values[7])


def clock_s(process: int | str = "self") -> float:
    """The time, less the time ``process`` waited for a core: a busy machine makes no reader late."""
    try:
        waited_ns = int(Path(f"/proc/{process}/schedstat").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended, or the kernel does not tell
        waited_ns = 0
    return time.monotonic() - waited_ns / 1e9


def work(
    catalogue: str,
    name: str,
    folder: Path,
    numbers: range,
    limits: tuple[float, int],
    mark: Mark,
    tell: Connection,
) -> None:
    """Read the mutations ``numbers``; stops after a mutation that held too much. limits: seconds, bytes."""
    _quiet()
    try:
        reader: Reader = import_module(catalogue).READERS[name]
        originals = _originals(reader, folder)
    except BaseException:
        tell.send_bytes(f"-1 {traceback.format_exc()}".encode(errors="replace"))
        raise
    held = _peak_bytes()
    mark.ready(held)
    place = folder / "mutated"
    server = os.getppid()
    for number in numbers:
        if os.getppid() != server:
            return  # the parent is gone
        rng = stream(number, "mutations", name)
        place.write_bytes(mutations.mutated(mutations.pick(rng, originals), reader.kinds, rng))
        refused, wrong, seconds = _timed(reader, place, number, mark)
        if seconds > limits[0]:
            refused, wrong, seconds = _timed(reader, place, number, mark)
        grown = _peak_bytes() - held
        if seconds > limits[0]:
            wrong = f"late: more than {limits[0]:g} s"
        if grown > limits[1]:
            wrong = f"held more than {limits[1]} bytes"
        if wrong:
            tell.send_bytes(f"{number} {wrong}".encode(errors="replace"))
        if grown > limits[1]:
            return
        mark.count_one(refused, seconds, grown)
    mark.finish()


def _timed(reader: Reader, place: Path, number: int, mark: Mark) -> tuple[bool, str, float]:
    """Whether it was refused, the finding, and the seconds it took."""
    mark.reads(number)
    began_at_s = clock_s()
    refused, wrong = _read(reader, place)
    return refused, wrong, clock_s() - began_at_s


def _originals(reader: Reader, folder: Path) -> list[bytes]:
    """The good files; each is read once, so that first-time compiling and loading is no finding."""
    paths = reader.originals(folder)
    for path in paths:
        reader.read(path)
    return [path.read_bytes() for path in paths]


def _read(reader: Reader, place: Path) -> tuple[bool, str]:
    """Whether the file was refused as expected; otherwise the exception, and its place."""
    try:
        reader.read(place)
    except SelvageError:
        return True, ""
    except BaseException as error:  # SystemExit and its like count as well
        return False, _told(error)
    return False, ""


def _told(error: BaseException) -> str:
    """The exception, and the last line of ours in its traceback."""
    places, step = [], error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file.startswith(f"{ROOT}/"):
            places.append(f"{file.removeprefix(f'{ROOT}/')}:{step.tb_lineno}")
        step = step.tb_next
    ours = [place for place in places if not place.startswith("tests/")] or places
    return f"{type(error).__name__} at {ours[-1] if ours else '?'}"


def _peak_bytes() -> int:
    """Most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _quiet() -> None:
    """Warnings are errors, as in every test; libraries' output is discarded."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
