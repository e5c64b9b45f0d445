"""Kills what a dead supervisor leaves behind. Standard library only; runs in a session of its own.

Lines on stdin name process groups: ``+123`` to watch, ``-123`` to forget. Stdin ends when its only writer,
the supervisor, dies; then every process group that is still watched gets SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def watch(lines: list[str] | None = None) -> set[int]:
    """Read stdin (or ``lines``) to its end; returns the process groups that are still watched."""
    groups: set[int] = set()
    for line in sys.stdin if lines is None else lines:
        sign, number = line[:1], line[1:].strip()
        if not number.isdigit() or int(number) <= 1:
            continue
        if sign == "+":
            groups.add(int(number))
        elif sign == "-":
            groups.discard(int(number))
    return groups


def main() -> None:
    """Watch, then kill. Signals meant for a terminal's foreground are ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in watch():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
