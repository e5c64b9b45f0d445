"""Replays of incidents in parts: planned by seed, kept when finished, resumed, shown on their page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from faults.drill.incidents import INCIDENTS, FaultPlace
from scripts.bench import incidents as bench
from scripts.output import filled
from scripts.studies.incidents import page, watching
from scripts.studies.incidents.plan import CONTROL, IncidentPart, noise_range_text, planned
from scripts.studies.incidents.results import (
    IncidentResult,
    KeptParts,
    figures_of,
    merged,
    misses,
    read_results,
)

PLACE = FaultPlace(block_tokens=32, context_tokens=1024, slices=("code", "prose"))
TWO = "hang,nan-sanitised"


def result_of(part: IncidentPart, **more: Any) -> IncidentResult:
    """An undetected part, except for ``more``."""
    plain = IncidentResult(
        name=part.name,
        seed=part.seed,
        limit_s=part.limit_s,
        noise=noise_range_text(),
        by="",
        after_s=None,
        tokens=100,
        prefill=False,
        health=False,
        struck=part.name != CONTROL,
        spent_s=2.0,
        load=1.0,
    )
    return replace(plain, **more)


def test_parts_go_seed_by_seed_with_a_control_each() -> None:
    """A stopped run has complete seeds, and each has its own control."""
    parts = planned("2..3", TWO, 45.0, PLACE)
    assert [part.place for part in parts] == [
        *("control.2", "hang.2", "nan-sanitised.2"),
        *("control.3", "hang.3", "nan-sanitised.3"),
    ]
    assert [part.fault is None for part in parts] == [part.name == CONTROL for part in parts]
    assert len(planned("0..9", "", 45.0, PLACE)) == 10 * (len(INCIDENTS) + 1)
    assert len(INCIDENTS) >= 20


@pytest.mark.parametrize(
    ("seeds", "classes", "said"),
    [
        ("3..1", "", "--seeds"),
        ("x", "", "--seeds"),
        ("0..5000", "", "--seeds"),
        ("0", "hung", "--classes: expected some of degraded-build"),
    ],
)
def test_what_names_no_part_is_refused(seeds: str, classes: str, said: str) -> None:
    """The message names the option, and valid values."""
    with pytest.raises(DocumentError, match=said):
        planned(seeds, classes, 45.0, PLACE)


def test_a_kept_part_counts_under_the_same_facts_alone(tmp_path: Path) -> None:
    """Other sources, another limit or a torn file mean that the part is run again."""
    part = planned("0", TWO, 45.0, PLACE)[1]
    kept = KeptParts(tmp_path, "sources")
    assert kept.load(part) is None
    kept.save(part, result_of(part, by="O-nonce", after_s=3.0))
    assert kept.load(part) == result_of(part, by="O-nonce", after_s=3.0)
    assert KeptParts(tmp_path, "others").load(part) is None
    assert kept.load(replace(part, limit_s=46.0)) is None
    assert read_results(tmp_path) == (result_of(part, by="O-nonce", after_s=3.0),)
    (file,) = (tmp_path / "parts").iterdir()
    file.write_text(file.read_text()[:-30])
    assert kept.load(part) is None


def test_a_fault_that_never_struck_is_not_missed() -> None:
    """It proves nothing, and is reported as such; misses are listed by seed."""
    control, hang, nan = planned("0", TWO, 45.0, PLACE)
    other = planned("1", "hang", 45.0, PLACE)[1]
    found = [
        result_of(control),
        result_of(hang, struck=False),
        result_of(nan),
        result_of(other, by="x", after_s=1.0),
    ]
    assert [one.verdict for one in found] == ["no alarm", "never struck", "missed", "caught"]
    assert misses(found) == {0: ["nan-sanitised"], 1: []}
    figures = figures_of(found)
    assert (figures["missed.0"], figures["missed.1"]) == ("nan-sanitised", "")
    assert (figures["caught"], figures["missed"], figures["never_struck"], figures["replayed"]) == (
        1,
        1,
        1,
        3,
    )
    assert replace(found[0], by="x").verdict == "false alarm: x"


def test_a_part_takes_the_place_of_the_same_one() -> None:
    """Results of a new run are added, and none appears twice."""
    parts = planned("0", TWO, 45.0, PLACE)
    old = [result_of(part) for part in parts]
    new = result_of(parts[1], by="no answer", after_s=9.0)
    assert merged(old, [new]) == (old[0], new, old[2])
    assert len(merged(old, [replace(new, noise="another")])) == 4


@dataclass
class Script:
    """A server on which ``restless`` parts leave an effect behind."""

    restless: tuple[str, ...]
    last: str = ""
    seen: list[str] = field(default_factory=list)

    def result(self, part: IncidentPart) -> IncidentResult:
        """No detection."""
        self.last = part.place
        self.seen.append(part.place)
        return result_of(part)

    def unrest(self) -> str:
        """The effect of the previous part."""
        return "a fault is still in force" if self.last in self.restless else ""


def scripted(
    bench_: watching.WatchedServer, monkeypatch: pytest.MonkeyPatch, restless: tuple[str, ...]
) -> list[Script]:
    """Servers of ``bench_`` as scripts; the list of started ones."""
    started: list[Script] = []

    @contextmanager
    def server(_: watching.WatchedServer) -> Iterator[Script]:
        started.append(Script(restless))
        yield started[-1]

    monkeypatch.setattr(type(bench_), "_server", server)
    return started


def test_one_server_serves_all_parts_but_where_it_does_not_come_to_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a part that left an effect a new server is started, and this is reported; at the end none is."""
    said: list[str] = []
    one = watching.WatchedServer(tmp_path, said.append)
    started = scripted(one, monkeypatch, ("hang.0", "nan-sanitised.1"))
    parts = planned("0..1", TWO, 45.0, PLACE)
    done: list[str] = []
    one.run(parts, lambda part, _: done.append(part.place))
    assert done == [part.place for part in parts]
    assert [server.seen for server in started] == [done[:2], done[2:]]
    assert said == ["a new server after hang.0: a fault is still in force"]


def test_a_stopped_replay_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command runs the rest, reports how much was kept, and has the results of all parts."""
    ran: list[str] = []

    class Stopped:
        """Stops after ``most`` parts."""

        most = 2

        def __init__(self, *_: object) -> None:
            pass

        def run(
            self, parts: tuple[IncidentPart, ...], on_done: Callable[[IncidentPart, IncidentResult], None]
        ) -> None:
            """Run the first few parts without detection."""
            for number, part in enumerate(parts):
                if number == self.most:
                    raise KeyboardInterrupt
                ran.append(part.place)
                on_done(part, result_of(part))

    monkeypatch.setattr(watching, "WatchedServer", Stopped)
    asked = {"seeds": "0..1", "classes": TWO, "out": str(tmp_path / "out")}
    with pytest.raises(KeyboardInterrupt):
        bench.run(**asked)
    Stopped.most = 99
    figures = bench.run(**asked)
    assert len(ran) == len(set(ran)) == 6
    assert (figures["replayed"], figures["missed"]) == (4, 4)
    told = capsys.readouterr().err
    assert "6 parts, 2 kept from before" in told
    assert "minutes" in told
    assert bench.table(figures).row_count == 6 + 2


def test_the_page_is_what_its_command_writes() -> None:
    """Every block between marks equals the one generated from docs/incidents.json."""
    text = page.PAGE.read_text()
    again = text
    for name, lines in page.blocks(page.published()).items():
        again = filled(again, name, "\n".join(lines), page.PAGE.name)
    assert again == text
