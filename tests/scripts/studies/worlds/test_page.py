"""The tables of random worlds show what the studies wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.harm import PAGE
from scripts.studies.worlds.harm import WorldsRun, drawn, print_worlds, world
from scripts.studies.worlds.page import KNOWN, SUMMARY, WORST, main, read_runs, tables
from tests.support.paths import DOCS

SPEC = {
    "pool": {"kernels": [{"name": "k0-bf16", "replicas": 3}, {"name": "k1-fp16", "replicas": 1}]},
    "workload": {"rate_rps": 12.5},
    "faults": [
        {"kind": "slow", "dose": 4.0, "target": {"zone": "a"}, "duration_s": 60.0},
        {
            "kind": "hang",
            "target": {"replica_ratio": 1.0},
            "shape": "intermittent",
            "intermittent": {"period_s": 20.0, "duty_ratio": 0.3},
        },
    ],
}


def run(kind: str, points: dict[int, list[float]], **other: Any) -> dict[str, Any]:
    """A run in which ``mover`` has ``points`` by world, and ``idler`` none."""
    rows = [
        {"number": number, "points": {"mover": each, "idler": [0.0, 0.0]}, "drawn": "k0-bf16 x2; no fault"}
        for number, each in points.items()
    ]
    return {"kind": kind, "chosen": False, "seeds": 2, "git_sha": "f" * 40, "worlds": rows, **other}


def written(folder: Path, *runs: dict[str, Any]) -> list[Path]:
    """A file of each run."""
    files = [folder / f"{place}.json" for place in range(len(runs))]
    for file, one in zip(files, runs, strict=True):
        file.write_text(json.dumps(one))
    return files


def test_a_kind_has_one_row_per_policy_over_all_its_files(tmp_path: Path) -> None:
    """Worlds of two files are counted together, in the order of the page, whatever that of the files."""
    found = read_runs(
        written(
            tmp_path,
            run("wider", {7: [4.0, 6.0]}),
            run("drawn", {3: [2.0, 2.0], 4: [-0.4, -0.4]}),
            run("drawn", {5: [-3.0, 1.0]}),
        )
    )
    lines = tables(found)[SUMMARY][2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| first kind, 3 to 5", "mover"],
        ["| first kind, 3 to 5", "idler"],
        ["| wider, 7 to 7", "mover"],
        ["| wider, 7 to 7", "idler"],
    ]
    assert "+0.2 (at least −" in lines[0]
    assert lines[0].endswith("| −1.0 | 1 of 3 | 86 % |")
    assert lines[3].endswith("| +0.0 | +0.0 | 0 of 1 | 95 % |")


def test_worlds_with_harm_are_listed_the_worst_first(tmp_path: Path) -> None:
    """Points by seed, and what was drawn; a sentence where there is none."""
    files = written(tmp_path, run("drawn", {3: [-2.0, 0.0], 4: [2.0, 2.0]}), run("alone", {9: [-5.0, -7.0]}))
    assert tables(read_runs(files))[WORST] == [
        "| world | mover | idler | drawn |",
        "| --- | --- | --- | --- |",
        "| one kernel alone 9 | −6.0 (−5.0, −7.0) | +0.0 (+0.0, +0.0) | k0-bf16 x2; no fault |",
        "| first kind 3 | −1.0 (−2.0, +0.0) | +0.0 (+0.0, +0.0) | k0-bf16 x2; no fault |",
    ]
    calm = read_runs(written(tmp_path, run("drawn", {3: [0.0, 0.0]})))
    assert tables(calm)[WORST] == ["No policy loses more than 0.5 points in any of these worlds."]


def test_worlds_named_one_by_one_count_in_no_share(tmp_path: Path) -> None:
    """They have a table of their own, with those that do no harm as well."""
    files = written(
        tmp_path, run("drawn", {3: [1.0, 1.0]}), run("drawn", {8: [-9.0, -9.0], 2: [1.0, 1.0]}, chosen=True)
    )
    found = tables(read_runs(files))
    assert "0 of 1" in found[SUMMARY][2]
    assert [line.split(" | ")[0] for line in found[KNOWN][2:]] == ["| first kind 8", "| first kind 2"]


@pytest.mark.parametrize(
    ("second", "path"),
    [
        (run("drawn", {3: [1.0, 1.0]}), "worlds"),
        (run("drawn", {4: [1.0]}, seeds=1), "seeds"),
        (run("unheard-of", {4: [1.0, 1.0]}), "kind"),
    ],
)
def test_runs_that_do_not_fit_are_refused(tmp_path: Path, second: dict[str, Any], path: str) -> None:
    """A world counted twice, other seeds, or a file of another command."""
    with pytest.raises(DocumentError, match=path):
        read_runs(written(tmp_path, run("drawn", {3: [1.0, 1.0]}), second))


def test_the_page_is_filled_between_its_marks(tmp_path: Path) -> None:
    """Tables that no file is about stay as they are."""
    marks = [f"<!-- begin {name} -->\nold\n<!-- end {name} -->" for name in (SUMMARY, WORST, KNOWN)]
    (tmp_path / PAGE).write_text("\n".join(marks))
    main(tmp_path, written(tmp_path, run("foreign", {3: [1.0, 1.0]})))
    text = (tmp_path / PAGE).read_text()
    assert text.count("old") == 1
    assert "| other engines, 3 to 3 | mover | 2 | +1.0 |" in text


def test_the_page_has_the_heads_that_the_command_writes(tmp_path: Path) -> None:
    """So filling it changes figures alone; each of its marks stands once."""
    text = (DOCS / PAGE).read_text()
    heads = tables(read_runs(written(tmp_path, run("drawn", {3: [1.0, 1.0]}))))[SUMMARY][:2]
    assert f"<!-- begin {SUMMARY} -->\n" + "\n".join(heads) in text
    for name in (SUMMARY, WORST, KNOWN):
        assert text.count(f"<!-- begin {name} -->") == text.count(f"<!-- end {name} -->") == 1


def test_what_was_drawn_is_told_in_full() -> None:
    """Kernels with replicas, load, and every fault with dose, target and course."""
    kernels = "k0-bf16 x3, k1-fp16 x1; 12.5 requests/s"
    faults = "slow 4.0 on zone a, 60 s; hang on replica_ratio 1.0, 6 of 20 s"
    assert drawn(SPEC) == f"{kernels}; {faults}"


def test_a_study_writes_what_the_page_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--json`` stdout is one object that the page takes; the lines stay on stderr."""
    asked = WorldsRun.of("drawn", range(0), "3", "fixed", 1)
    assert asked.chosen
    print_worlds(asked, (world(number) for number in asked.numbers), as_json=True)
    printed = capsys.readouterr()
    assert printed.err.startswith("3: fixed ")
    file = tmp_path / "drawn.json"
    file.write_text(printed.out)
    assert tables(read_runs([file]))[KNOWN][2].startswith("| first kind 3 |")
