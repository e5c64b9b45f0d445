"""The test command runs every test once, and fails if either of its runs does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests import conftest, parts
from tests.conftest import ALONE, PARTS


@pytest.mark.parametrize(
    ("codes", "joined"),
    [((0, 0), 0), ((0, 5), 0), ((5, 0), 0), ((5, 5), 5), ((1, 0), 1), ((0, 1), 1), ((5, 1), 1), ((2,), 2)],
)
def test_one_bad_run_is_a_bad_result(codes: tuple[int, ...], joined: int) -> None:
    """No tests in one of the runs is no failure; none in both is."""
    assert parts.joined(codes) == joined


def test_the_two_runs_leave_nothing_out() -> None:
    """One run selects exactly the tests that the other leaves."""
    assert parts.SHARED[:2] == ("-m", "not alone")
    assert parts.OWN == ("-m", "alone")
    assert set(PARTS) >= ALONE


BROKEN = """
import pytest

@pytest.fixture
def missing():
    raise OSError("no such server")

def test_fails(): assert 1 == 2, "one is not two"
def test_cannot_begin(missing): pass
def test_holds(): pass
"""


def test_what_failed_is_named_with_what_it_said(tmp_path: Path) -> None:
    """A test that fails and one whose fixture does are named; one that holds is not."""
    (tmp_path / "test_broken.py").write_text(BROKEN)
    report = tmp_path / "report.xml"
    ran = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "."]
    assert subprocess.run(ran, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    failed = list(parts.failures(report))
    assert len(failed) == 2
    assert failed[0].startswith("test_broken::test_fails: AssertionError: one is not two")
    assert failed[1].startswith("test_broken::test_cannot_begin:")
    assert "no such server" in failed[1]


def test_a_run_without_a_report_names_nothing(tmp_path: Path) -> None:
    """A run that was killed before it wrote its report adds no names."""
    assert list(parts.failures(tmp_path / "none.xml")) == []


class Item:
    """A test with some markers."""

    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self.marks = {one.name: one.mark for one in marks}

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        """The markers called ``name``."""
        return [mark for key, mark in self.marks.items() if key == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """The closest marker called ``name``."""
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        """Add a marker."""
        self.marks[name] = getattr(pytest.mark, name).mark


@pytest.mark.parametrize(
    ("marks", "full", "alone"),
    [
        ((), False, False),
        ((pytest.mark.needs("chromium"),), False, False),
        ((pytest.mark.needs("kube_api"),), False, True),
        ((pytest.mark.needs("kube_api"), pytest.mark.waits), False, False),
        ((pytest.mark.needs("kube_api"), pytest.mark.waits), True, True),
    ],
)
def test_what_starts_servers_runs_alone_unless_it_only_waits(
    monkeypatch: pytest.MonkeyPatch, marks: tuple[pytest.MarkDecorator, ...], full: bool, alone: bool
) -> None:
    """With a cluster that all tests share, tests that only wait run alone as well."""
    monkeypatch.setattr(conftest, "full_cluster", lambda: full)
    item = Item(*marks)
    conftest.pytest_collection_modifyitems([cast(pytest.Item, item)])
    assert ("alone" in item.marks) is alone
