"""The virtual environment of the project: its contents, by a stamp, and running programs in it.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from glob import glob
from pathlib import Path
from shutil import which
from time import perf_counter

from contracts.home import HOME

CONSTRAINTS = HOME / "requirements" / "constraints.txt"
INPUTS = (
    HOME / "pyproject.toml",
    CONSTRAINTS,
    HOME / "scripts" / "setup" / "steps.py",
    Path(__file__).resolve(),
    HOME / "scripts" / "setup" / "wheel.py",
)
#: Seconds between two messages during a silent step.
SAY_EVERY_S = 5.0


class StepError(Exception):
    """A part cannot be installed; the message says why and what to do."""


def say(text: str) -> None:
    """Progress goes to stderr: stdout belongs to results."""
    sys.stderr.write(f"setup: {text}\n")
    sys.stderr.flush()


def has_gpu() -> bool:
    """Whether an NVIDIA device is visible (as in scripts.provenance; this file runs alone)."""
    return bool(glob("/dev/nvidia[0-9]*")) or which("nvidia-smi") is not None


class Venv:
    """One virtual environment and the stamp that records its contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.stamp = path / "selvage-setup.json"

    def parts(self) -> set[str]:
        """Parts installed from exactly the present inputs; empty if anything changed or moved."""
        try:
            stamp = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return set()
        current = stamp.get("key") == input_key() and stamp.get("path") == str(self.path)
        return set(stamp["parts"]) if current and self.python.exists() else set()

    def record(self, part: str) -> None:
        """Add ``part`` to the stamp."""
        parts = sorted(self.parts() | {part})
        text = json.dumps({"key": input_key(), "parts": parts, "path": str(self.path)}, sort_keys=True)
        temporary = self.stamp.with_suffix(".tmp")
        temporary.write_text(text + "\n")
        os.replace(temporary, self.stamp)

    def create(self) -> None:
        """Create the environment unless a usable one exists."""
        if self.python.exists() and self._usable():
            return
        if self.path.exists() and not (self.path / "pyvenv.cfg").exists():
            raise StepError(f"{self.path} exists and is no virtual environment; move it away and run again")
        say(f"creating {self.path} with Python {sys.version.split()[0]}")
        run([sys.executable, "-m", "venv", "--clear", str(self.path)])

    def _usable(self) -> bool:
        code = "import sys, pip; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else 1)"
        moved = str(self.path) not in (self.path / "pyvenv.cfg").read_text() and self.stamp.exists()
        return not moved and succeeds([str(self.python), "-c", code])

    def pip(self, *arguments: str) -> None:
        """``pip install`` under the project's constraints."""
        run(self._install(*arguments))

    def tried_pip(self, *arguments: str) -> bool:
        """The same without output; False if it fails."""
        return succeeds(self._install(*arguments))

    def _install(self, *arguments: str) -> list[str]:
        constrained = ["-c", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
        # Python compiles byte code for imported files on demand; compiling all files doubles the time.
        lazy = [] if sys.dont_write_bytecode else ["--no-compile"]
        return [*self._pip("install"), "-qq", *lazy, *constrained, *arguments]

    def pip_output(self, *arguments: str) -> str:
        """Standard output of ``pip arguments``."""
        return output([*self._pip(*arguments)])

    def has(self, code: str) -> bool:
        """Whether the Python expression ``code`` holds inside the environment."""
        return succeeds([str(self.python), "-c", f"import sys; sys.exit(0 if ({code}) else 1)"])

    def holds(self, pinned: str) -> bool:
        """Whether exactly this ``name==version`` is installed."""
        name, _, version = pinned.partition("==")
        return self.has(f"__import__('importlib.metadata').metadata.version({name!r}) == {version!r}")

    def _pip(self, command: str, *arguments: str) -> list[str]:
        return [str(self.python), "-m", "pip", command, "--disable-pip-version-check", *arguments]


def input_key() -> str:
    """Hash over everything that decides what gets installed."""
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.read_bytes() if path.exists() else b"")
    digest.update(b"gpu" if has_gpu() else b"cpu")
    return digest.hexdigest()


def run(command: list[str], *, say_every_s: float | None = SAY_EVERY_S) -> None:
    """Run ``command`` with its output shown, and report now and then that it runs; StepError if it fails."""
    started_at_s = perf_counter()
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        code = None
        while code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(say_every_s)
                break
            say(f"... {perf_counter() - started_at_s:.0f} s")
    if code:
        raise StepError(f"exit code {code} from: {' '.join(command)}")


def output(command: list[str]) -> str:
    """Standard output of ``command``; StepError when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise StepError(f"exit code {done.returncode} from: {' '.join(command)}")
    return done.stdout


def succeeds(command: list[str]) -> bool:
    """Whether ``command`` starts and exits with 0, silently."""
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False
