"""Limits the disk space of all policies' decision logs, because a pod that outgrows its volume is evicted.

The oldest closed files of any policy are deleted first. Every file begins with the documents and the state
from which its turns continue, so the remaining files can still be verified and replayed. With more policies,
each file is closed at a smaller size. If space still runs out, nothing more is logged, and a log line of the
operator warns of that.
"""

from __future__ import annotations

from pathlib import Path

from live.control.journal import SEGMENT_BYTES, segments

#: Default limit of all logs together.
MOST_BYTES = 768 * 2**20
#: Minimum size at which a file is closed, because each file begins with a complete state.
LEAST_SEGMENT_BYTES = 2**18
#: Number of files that fit into the share of one policy.
_PARTS = 4
#: Minimum number of lines between two scans of the folder.
_LINES = 16


class LogSpace:
    """Disk space under ``folder``, which has one folder per policy. Not thread-safe."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self._open: set[Path] = set()
        self._lines, self._fits = 0, True

    @property
    def segment_bytes(self) -> int:
        """Size at which a file is closed, for the number of policies that write now."""
        own = self.most_bytes // (_PARTS * max(1, len(self._open)))
        return max(LEAST_SEGMENT_BYTES, min(SEGMENT_BYTES, own))

    def opened(self, place: Path) -> None:
        """Note that a policy writes to ``place``; the folder is scanned before the next line."""
        self._open.add(place)
        self._lines = 0

    def closed(self, place: Path) -> None:
        """Note that no policy writes to ``place`` any more; all of its files may be deleted."""
        self._open.discard(place)

    def takes(self) -> bool:
        """Whether another line may be written. Scans the folder from time to time and deletes old files."""
        if self._lines <= 0 or not self._fits:
            self._fits = self._make_room()
            self._lines = max(_LINES, len(self._open))
        self._lines -= 1
        return self._fits

    def _make_room(self) -> bool:
        """Delete the oldest closed files until the limit is kept; returns whether it is kept."""
        sizes = {path: path.stat().st_size for path in self.folder.rglob("*") if path.is_file()}
        total = sum(sizes.values())
        for path in self._closed_files():
            if total <= self.most_bytes:
                break
            path.unlink(missing_ok=True)
            total -= sizes.get(path, 0)
        return total <= self.most_bytes

    def _closed_files(self) -> list[Path]:
        """Log files that are not being written to, oldest first."""
        found: list[Path] = []
        for place in sorted(one for one in self.folder.iterdir() if one.is_dir()):
            own = segments(place)
            found += own[:-1] if place in self._open else own
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
