"""First step of every make target: find a Python that fits, then hand over to steps.py.

Must be parsed by the Python it refuses, so: no annotations, no f-strings, standard library only.
"""

import os
import subprocess
import sys

OLDEST = (3, 11)
NEWEST = (3, 13)
CANDIDATES = ("python3.13", "python3.12", "python3.11")
ASK = "import sys; sys.exit(0 if (%d, %d) <= sys.version_info[:2] <= (%d, %d) else 1)" % (OLDEST + NEWEST)


def fits(version):
    """Whether (major, minor) is a supported Python."""
    return OLDEST <= version <= NEWEST


def runs_and_fits(command):
    """Whether ``command`` starts (a version manager's shim may not) and is a supported Python."""
    try:
        with open(os.devnull, "w") as nowhere:
            return subprocess.call([command, "-c", ASK], stdout=nowhere, stderr=nowhere) == 0
    except OSError:
        return False


def refuse(found):
    """Say what is wanted, what was found, and the next step."""
    sys.stderr.write(
        "selvage: expected Python 3.11, 3.12 or 3.13, got %s (%s); install one of them, "
        "or name it: make PYTHON=/path/to/python3.12 ...\n" % (found, sys.executable)
    )
    return 2


def main():
    """Run steps.py under a supported Python; its exit code, or 2 when there is none."""
    found = "%d.%d.%d" % sys.version_info[:3]
    python = sys.executable
    if not fits(sys.version_info[:2]):
        python = next((name for name in CANDIDATES if runs_and_fits(name)), None)
        if python is None:
            return refuse(found)
        sys.stderr.write("selvage: this is Python %s; using %s instead\n" % (found, python))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [python, "-m", "scripts.setup.steps"] + sys.argv[1:]  # noqa: RUF005 (old syntax)
    return subprocess.call(command, cwd=root)


if __name__ == "__main__":
    sys.exit(main())
