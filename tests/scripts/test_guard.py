"""The outermost handler: every end of a command has one line and one exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

GUARDED = "import sys\nfrom scripts.guard import run_guarded\n"


def heed_hangup() -> None:
    """``nohup`` or a parent shell may have HUP or Ctrl-C ignored, which child processes inherit; such signals
    would not be handled.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def program(body: str, state: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a guarded function with ``body`` in a process of its own."""
    code = f"{GUARDED}def run():\n    {body}\nsys.exit(run_guarded(run))"
    settings = {"XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT)}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "preexec_fn": heed_hangup, **more}
    return subprocess.run(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **settings},
        **options,
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("1 / 0", 70),
        ("raise MemoryError", 70),
        ("raise RecursionError('deep')", 70),
        ("raise UnicodeEncodeError('ascii', 'x', 0, 1, 'no')", 70),
        ("raise SystemExit('words')", 70),
        ("raise KeyboardInterrupt", 130),
        ("raise BrokenPipeError(32, 'gone')", 141),
        ("raise OSError(28, 'No space left on device')", 2),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); [0 for _ in iter(int, 1)]", 143),
        ("import os, signal; os.kill(os.getpid(), signal.SIGHUP); [0 for _ in iter(int, 1)]", 129),
        (
            "import ctypes, os, signal\n    end = lambda: os.kill(os.getpid(), signal.SIGTERM)"
            "\n    ctypes.CFUNCTYPE(None)(end)(); [0 for _ in iter(int, 1)]",  # as a cache's callback
            143,
        ),
        (
            "import os, signal\n    try: os.kill(os.getpid(), signal.SIGTERM); [0 for _ in iter(int, 1)]"
            "\n    except KeyboardInterrupt: sys.exit(130)",  # as Typer does while it reads the words
            143,
        ),
    ],
)
def test_every_end_has_a_code_of_its_own(body: str, code: int, tmp_path: Path) -> None:
    """No exception and no signal ends a command with the code of a failed judgement, or with a traceback."""
    done = program(body, tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


def test_a_bug_leaves_a_report(tmp_path: Path) -> None:
    """The one line names the report, which holds the traceback."""
    done = program("print('before'); raise LookupError('the\\x1b[2Jthing')", tmp_path)
    assert done.stdout == "before\n"
    report = next((tmp_path / "selvage" / "crashes").iterdir())
    assert str(report) in done.stderr
    assert "\x1b" not in done.stderr
    assert "LookupError" in report.read_text(encoding="utf-8")


def test_a_full_device_is_no_failed_judgement(tmp_path: Path) -> None:
    """Output that cannot be written is bad input, wherever it is noticed first."""
    with Path("/dev/full").open("w") as full:
        assert program("print('x')", tmp_path, stdout=full).returncode == 2
        assert program("print('x', flush=True)", tmp_path, stdout=full).returncode == 2


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_the_null_device(closed: int, tmp_path: Path) -> None:
    """With a closed standard stream the work is done, without a traceback, and no file gets its number."""
    body = (
        f"print('x'); sys.stderr.write('y'); f = open({str(tmp_path / 'kept')!r}, 'w'); print(f.fileno() > 2)"
    )
    done = program(body, tmp_path, preexec_fn=lambda: os.close(closed))
    assert done.returncode == 0
    assert done.stderr == ("" if closed == 2 else "y")
    assert done.stdout == ("" if closed == 1 else "x\nTrue\n")


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A long clean-up is ended by the next Ctrl-C, with the same code."""
    stop = "os.kill(os.getpid(), signal.SIGINT); [0 for _ in iter(int, 1)]"
    body = f"import os, signal\n    try:\n        {stop}\n    finally:\n        {stop}"
    assert program(body, tmp_path, preexec_fn=heed_hangup).returncode == 130


@pytest.mark.parametrize("module", ["typer", "scripts.cli.main", "scripts.guard"])
def test_ctrl_c_while_the_command_is_loaded_shows_no_traceback(module: str) -> None:
    """A command interrupted before it begins ends by the signal, without output."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "runpy.run_module('selvage_fleet', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=heed_hangup,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_after_the_last_word_shows_no_traceback(tmp_path: Path) -> None:
    """A signal after the run's end ends the process at once, with the signal's code."""
    pressed = "__import__('os').kill(__import__('os').getpid(), 2)"
    body = f"import atexit; atexit.register(lambda: {pressed})"
    done = program(body, tmp_path, preexec_fn=heed_hangup)
    assert (done.returncode, done.stderr) == (130, "")


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    """A HUP that was ignored before stays ignored."""
    body = "import os, signal; os.kill(os.getpid(), signal.SIGHUP)"
    assert program(body, tmp_path, preexec_fn=_ignore_hup).returncode == 0


def _ignore_hup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    """A process that waits forever ends when its parent is killed."""
    worker = "import os; from scripts.guard import die_with; die_with(int(os.sys.argv[1])); input()"
    code = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {worker!r}, str(os.getpid())],"
        " stdin=subprocess.PIPE)\nprint(child.pid, flush=True)\nchild.wait()"
    )
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=settings
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    for _ in range(400):
        if not is_running(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def is_running(process: int) -> bool:
    """True for an existing process that is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ascii_terminals_get_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters that an encoding lacks are written as equivalent ASCII."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    prepare = "from scripts.guard import write_what_can_be; write_what_can_be(sys.stdout)"
    done = program(f"{prepare}; print('1 \\u2264 2 \\u2013 \\u00e9 \\u4e2d')", tmp_path)
    assert done.stdout == "1 <= 2 - e ?\n"
