"""The test command: first the tests that can share the machine, on all cores, then the others one by one.

``python -m tests.parts [PYTEST OPTIONS]`` runs every test once, in two runs of pytest, and fails if either
does, or if the options select no test at all. At the end it names what failed in either run: the first run's
own list is thousands of lines up by then.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

#: More workers than this gain nothing: the last of them waits for the longest files.
MOST_WORKERS = 8
#: Files stay whole, so that a module's fixture is started once.
SHARED = ("-m", "not alone", "-n", "auto", "--maxprocesses", str(MOST_WORKERS), "--dist", "loadfile")
OWN = ("-m", "alone")
#: What takes long is said at the end of each run, so that a gate that grows says where.
SLOWEST = ("--durations", "20", "--durations-min", "5")


def joined(codes: Sequence[int]) -> int:
    """One exit code of several runs: the first bad one; "no tests" only if no run had any."""
    none = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    bad = [code for code in codes if code not in (0, none)]
    if bad:
        return bad[0]
    return 0 if 0 in codes else none


def failures(report: Path) -> Iterator[str]:
    """One line per failed test of a JUnit ``report`` of pytest, with what it said first; none without one."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).iter("testcase"):
        for found in (*case.iter("failure"), *case.iter("error")):
            said = found.get("message", "").strip().partition("\n")[0]
            yield f"{case.get('classname')}::{case.get('name')}: {said}"


def main(options: Sequence[str]) -> int:
    """Run both parts with ``options``; the second one even if the first fails, unless it was interrupted."""
    codes: list[int] = []
    failed: list[str] = []
    with TemporaryDirectory() as folder:
        for at, part in enumerate((SHARED, OWN)):
            report = Path(folder, f"{at}.xml")
            ran = [sys.executable, "-m", "pytest", *part, *SLOWEST, f"--junitxml={report}", *options]
            codes.append(subprocess.run(ran, check=False).returncode)
            failed += failures(report)
            if codes[-1] == int(pytest.ExitCode.INTERRUPTED):
                break
    if failed:
        print(f"\n{len(failed)} tests failed:", *failed, sep="\n  ")
    return joined(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
