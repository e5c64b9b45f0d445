"""Every reader against mutated files: it reads them or reports the problem, soon and in little memory.

``SELVAGE_MUTATIONS`` sets how many per reader (``make hostile``: 10,000; 200 otherwise), ``SELVAGE_FUZZERS``
how many processes share them (as many as cores).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hostile import catalogue, crowded, planted
from tests.hostile.catalogue import READERS
from tests.hostile.fuzzing import Limits, Task, fuzz, to_terminal

MUTATIONS = int(os.environ.get("SELVAGE_MUTATIONS", "200"))
#: A worker makes its good files first, which takes longer than some hundred mutations.
WORKERS = min(int(os.environ.get("SELVAGE_FUZZERS") or len(os.sched_getaffinity(0))), 1 + MUTATIONS // 1000)
NAMES = [pytest.param(name, marks=pytest.mark.needs(*reader.needs)) for name, reader in READERS.items()]
CROWDED = [pytest.param(name, marks=pytest.mark.needs(*one.needs)) for name, one in crowded.READERS.items()]

#: Findings for a planted reader.
SAID = {
    "raising": "KeyError at",
    "leaving": "SystemExit at",
    "hanging": "late: more than 1 s",
    "hanging_in_c": "late: more than 1 s",
    "slow": "late: more than 1 s",
    "swelling": "held more than 200000000 bytes",
    "swallowing": "held more than 200000000 bytes",
    "dying": "the process ended with 3",
    "crashing": "the process ended with -6",
}


@pytest.mark.timeout(900 if MUTATIONS <= 200 else 3600)
@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_are_read_or_refused(name: str) -> None:
    """No mutation makes a reader raise anything but its own error, take 5 s, or hold a gigabyte."""
    found = fuzz(Task(catalogue=catalogue.__name__, name=name, count=MUTATIONS, workers=WORKERS), to_terminal)
    assert not found.findings
    assert found.done == MUTATIONS
    assert found.refused > MUTATIONS * READERS[name].refused_share


@pytest.mark.slow
@pytest.mark.parametrize("name", CROWDED)
def test_crowded_files_are_refused(name: str) -> None:
    """A file within its cap that would unpack to more than a gigabyte is not unpacked."""
    found = fuzz(Task(catalogue=crowded.__name__, name=name, count=1))
    assert not found.findings
    assert found.done == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_originals_are_read(name: str, tmp_path: Path) -> None:
    """The originals are valid files."""
    reader = READERS[name]
    for path in reader.originals(tmp_path):
        reader.read(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_a_bad_reader_is_found(name: str) -> None:
    """Whatever it catches or calls: errors, exits, hangs, memory and sudden ends; the rest is read on."""
    limits = Limits(seconds=20.0 if "held" in SAID[name] else 1.0, bytes=2 * 10**8)
    task = Task(catalogue=planted.__name__, name=name, count=12, limits=limits, workers=2)
    found = fuzz(task)
    assert [text for text in found.findings if not text.startswith(SAID[name])] == []
    assert sum(count for _, count in found.findings.values()) >= 1
    assert found.done == 12
    assert found.refused >= 1


def test_a_sound_reader_is_not(tmp_path: Path) -> None:
    """No fault gives no finding, and every mutation counts once, whichever worker read it."""
    several = [
        fuzz(Task(catalogue=planted.__name__, name="sound", count=50, workers=workers)) for workers in (1, 3)
    ]
    assert [(one.done, one.findings) for one in several] == [(50, {}), (50, {})]
    assert several[0].refused == several[1].refused > 0


def test_every_planted_fault_is_expected() -> None:
    """Every planted fault has a test that looks for it."""
    assert set(SAID) | {"sound"} == set(planted.READERS)
