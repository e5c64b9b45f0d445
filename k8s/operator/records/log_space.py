"""How much room the decision logs of all policies may take: a pod that outgrows its volume is evicted.

The oldest closed files of any policy go first. A file begins with the documents and the state that its turns
go on from, so what is left is verified and replayed as before. Files that are being written to are closed
earlier the more policies there are; where even that is not enough nothing more is written, and that is said.
"""

from __future__ import annotations

from pathlib import Path

from live.control.journal import SEGMENT_BYTES, segments

#: Room of all logs, unless somebody says otherwise.
MOST_BYTES = 768 * 2**20
#: Files are closed at no less than this, because each begins with a whole state.
LEAST_SEGMENT_BYTES = 2**18
#: Files that a policy has open and closed fit so many times into its part.
_PARTS = 4
#: The folder is looked at again after so many lines.
_LINES = 16


class LogSpace:
    """Room under ``folder``, which has one folder per policy. One thread asks."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self._open: set[Path] = set()
        self._lines, self._fits = 0, True

    @property
    def segment_bytes(self) -> int:
        """At which size a file is to be closed, with as many policies as write now."""
        own = self.most_bytes // (_PARTS * max(1, len(self._open)))
        return max(LEAST_SEGMENT_BYTES, min(SEGMENT_BYTES, own))

    def opened(self, place: Path) -> None:
        """A policy writes to ``place``: room is made before its next line."""
        self._open.add(place)
        self._lines = 0

    def closed(self, place: Path) -> None:
        """Nobody writes to ``place`` any more: all of it may go."""
        self._open.discard(place)

    def takes(self) -> bool:
        """Whether another line may be written; looks at the folder now and then, and makes room."""
        if self._lines <= 0 or not self._fits:
            self._fits = self._make_room()
            self._lines = max(_LINES, len(self._open))
        self._lines -= 1
        return self._fits

    def _make_room(self) -> bool:
        """Delete the oldest files that nobody writes to while all of it is too much; whether it fits now."""
        sizes = {path: path.stat().st_size for path in self.folder.rglob("*") if path.is_file()}
        total = sum(sizes.values())
        for path in self._closed_files():
            if total <= self.most_bytes:
                break
            path.unlink(missing_ok=True)
            total -= sizes.get(path, 0)
        return total <= self.most_bytes

    def _closed_files(self) -> list[Path]:
        """Files of logs that nobody writes to, oldest first."""
        found: list[Path] = []
        for place in sorted(one for one in self.folder.iterdir() if one.is_dir()):
            own = segments(place)
            found += own[:-1] if place in self._open else own
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
