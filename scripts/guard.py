"""The outermost handler of the command line: every failure ends in one line and a documented exit code.

An unforeseen exception is a bug: exit code 70, one line, and a crash report with the traceback.
TERM and HUP end a run as Ctrl-C does, and the exit code says which: 128 and the signal's number. A second one
ends it at once. Standard output that cannot be written is bad input (2); a reader that goes away ends the run
as SIGPIPE would (141). Long work is asked to stop after its running step (``stoppable``), so that its kept
files are complete.

Standard library only: ``selvage --help`` loads this.
"""

from __future__ import annotations

import codecs
import errno
import io
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import threading
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TextIO

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BUG, EXIT_PIPE = 1, 2, 70, 128 + signal.SIGPIPE
EXIT_INTERRUPTED = 128 + signal.SIGINT

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
#: Characters beyond ASCII in tables and pages.
_ASCII = {
    "\u2013": "-",
    "\u2014": "-",
    "\u2212": "-",
    "\u2026": "...",
    "\u2192": "->",
    "\u00b1": "+/-",
    "\u00d7": "x",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2016": "||",
    "\u2019": "'",
    "\u00b7": ".",
}
#: Signals that end a run.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code_of(error: KeyboardInterrupt) -> int:
    """128 and the number of the signal behind ``error``."""
    return 128 + getattr(error, "number", signal.SIGINT)


class _Signals:
    """Handler of the signals that end a run: the first as an exception, the second at once."""

    def __init__(self) -> None:
        self.number = 0  # of the first; 0 before it
        self.is_over = False  # no handler is left that would catch an exception

    def install(self) -> None:
        """Handle the signals of ``ENDING`` that this process does not ignore (``nohup`` ignores HUP)."""
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)
        sys.unraisablehook = self._swallowed

    def _swallowed(self, found: sys.UnraisableHookArgs) -> None:
        """Send a signal again if C code swallowed its exception, as in numba's cache callbacks."""
        if not isinstance(found.exc_value, Interrupted):
            sys.__unraisablehook__(found)
            return
        self.number, main = 0, threading.main_thread().ident
        again = threading.Timer(0.05, signal.pthread_kill, (main, found.exc_value.number))
        again.daemon = True
        again.start()

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's
        """The signal's handler."""
        if self.number or self.is_over:
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(128 + number)
        self.number = number
        raise Interrupted(number)


def run_guarded(run: Callable[[], None]) -> int:
    """Exit code of ``run``, which may raise anything; see the module."""
    signals = _Signals()
    signals.install()
    _open_closed()
    try:
        run()
        code = 0
    except SystemExit as error:
        code = _code(error)
    except KeyboardInterrupt as error:
        code = exit_code_of(error)
    except BaseException as error:  # the outermost net: the report holds the error
        code = _caught(error)
    if code == EXIT_INTERRUPTED and signals.number:  # Typer has this code for any interrupt of its parsing
        code = 128 + signals.number
    signals.is_over = True
    return _flushed(code)


def _open_closed() -> None:
    """Connect standard streams that were closed before start to the null device, as if redirected.

    Without it nothing can be printed, and the next opened file gets the number of the closed one.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def _code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    _say(str(error.code))
    return EXIT_BUG


def _caught(error: BaseException) -> int:
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return EXIT_PIPE
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        _say(f"error: cannot write: {error.strerror}")
        return EXIT_BAD_INPUT
    first = str(error).partition("\n")[0][:200]
    told = f"{type(error).__name__}: {first}" if first else type(error).__name__
    _say(f"error: this is a bug in selvage ({told}); {_reported(error)}")
    if os.environ.get("SELVAGE_DEBUG"):
        traceback.print_exception(error)
    return EXIT_BUG


def _reported(error: BaseException) -> str:
    """Write a crash report; returns its path, or that there is none."""
    now = datetime.now(UTC)
    lines = [
        f"at {now.isoformat(timespec='seconds')}",
        f"command {sys.argv}",
        f"python {platform.python_version()} on {platform.platform()}",
        "",
        *traceback.format_exception(error),
    ]
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
            path.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
            return f"report: {path}; SELVAGE_DEBUG=1 shows the traceback"
    return "no report could be written; SELVAGE_DEBUG=1 shows the traceback"


def _folders() -> list[Path]:
    """Folders for reports, best first."""
    state = os.environ.get("XDG_STATE_HOME")
    home = Path(state) if state else Path(os.path.expanduser("~")) / ".local" / "state"
    return [home / "selvage" / "crashes", Path(tempfile.gettempdir())]


def _flushed(code: int) -> int:
    """``code``, or the code for a standard output that cannot be written."""
    try:
        sys.stdout.flush()
        return code
    except OSError as error:
        # The interpreter flushes once more at exit, and would exit with its own code.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno == errno.EPIPE:
            return code or EXIT_PIPE
        if code == 0:
            _say(f"error: cannot write: {error.strerror}")
        return code or EXIT_BAD_INPUT


def _say(line: str) -> None:
    with suppress(OSError, ValueError):
        print("".join(one if one.isprintable() else ascii(one)[1:-1] for one in line), file=sys.stderr)


@contextmanager
def on_interrupt(told: Callable[[], str]) -> Iterator[None]:
    """A signal that ends the block also prints ``told()``: what was kept, and how to resume."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(told())
        raise


def kept_in(folder: Path, pattern: str = "*.json") -> str:
    """Message of an interrupted run that resumes from the files in ``folder``."""
    count = sum(1 for _ in folder.glob(pattern))
    if not count:
        return "nothing was finished; the same command begins anew"
    files = "1 file" if count == 1 else f"{count} files"
    return f"what was finished is kept in {folder} ({files}); the same command goes on from it"


@contextmanager
def ended_on_error() -> Iterator[None]:
    """Context that terminates the processes started within it when an exception leaves it.

    Their results are not used any more, and a pool would wait for them to finish.
    """
    others = set(multiprocessing.active_children())
    try:
        yield
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise


def write_what_can_be(stream: TextIO) -> None:
    """Let ``stream`` replace characters that its encoding lacks, by equivalent ASCII if there is one."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error("selvage-plain", _plain)
        stream.reconfigure(errors="selvage-plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(one) or _folded(one) for one in missing), error.end


def _folded(one: str) -> str:
    return unicodedata.normalize("NFKD", one).encode("ascii", "ignore").decode() or "?"


def die_with(parent: int) -> None:
    """End this process soon after the process ``parent`` has ended in any way.

    A thread checks twice a second: a worker of a pool would otherwise wait forever for work.
    """

    def watch() -> None:
        never = threading.Event()
        while os.getppid() == parent:
            never.wait(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="die-with-parent").start()


class Stopped:
    """Set by SIGINT, SIGTERM or SIGHUP, with the number; training looks at it after every step."""

    def __init__(self) -> None:
        self.flag = False
        self.number = int(signal.SIGINT)

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's
        """The signal's handler; the second signal does not wait for the running step."""
        if self.flag:
            raise Interrupted(number)
        self.flag, self.number = True, number


@contextmanager
def stoppable() -> Iterator[Stopped]:
    """While the block runs, SIGINT, SIGTERM and SIGHUP ask it to stop, those of them that are not ignored.

    A nested block is stopped by the same signals, and so is the rest of the outer one.
    """
    outer = signal.getsignal(signal.SIGTERM)
    stopped = outer if isinstance(outer, Stopped) else Stopped()
    obeyed = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stopped) for number in obeyed}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
