"""One FaultDrill of E5 by a fake runner: counted results, waits, and clean-up in every case."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from faults.drill.outcome import judge
from faults.drill.runner import run_drill
from k8s.operator.drills.ledger import LINE, REPORT, ledger_name
from k8s.operator.drills.report import outcome_content, outcome_line
from k8s.operator.objects import ClusterError
from scripts.e5_cluster import drills as course
from scripts.e5_cluster.drills import OF_POLICY, DrillCourse, EndedDrill, result_of
from scripts.e5_cluster.ports import ExperimentCluster, ExperimentError, Waiting
from scripts.e5_drills.plan import DrillEpisode
from tests.scripts.e5_cluster.test_plan import planned
from tests.support.fleets.drill_runs import NotedLedger, ScriptedTarget
from tests.support.fleets.episodes import broken_record, move_at, step_fault

Object = dict[str, Any]
#: Values that a report from a foreign writer may contain.
OTHERS: tuple[Any, ...] = (None, "x", [], {}, -1, 1e308, True, [[1]])


def conditions(**states: str) -> list[Object]:
    """Conditions in a status's form."""
    return [{"type": kind, "status": status, "message": f"why {kind}"} for kind, status in states.items()]


def status(phase: str, **more: Any) -> Object:
    """Status of a drill of the first generation."""
    return {"observedGeneration": 1, "phase": phase, **more}


class Runner:
    """A namespace with a runner that reports ``statuses`` one after the other, and deletes if ``undoes``."""

    def __init__(self, *statuses: Object, undoes: bool = True) -> None:
        self.statuses, self.undoes = list(statuses), undoes
        self.there: dict[str, Object] = {}
        self.config: Object | None = None
        self.deleted: list[str] = []

    def drills(self) -> dict[str, Object]:
        """All present drills."""
        return self.there

    def drill(self, name: str) -> Object | None:
        """With the next status."""
        if name not in self.there:
            return None
        if len(self.statuses) > 1:
            self.statuses.pop(0)
        return {**self.there[name], "status": self.statuses[0] if self.statuses else {}}

    def create_drill(self, drill: Object) -> Object:
        """The drill as the server returns it."""
        made = {**drill, "metadata": {**drill["metadata"], "uid": "u", "generation": 1}}
        self.there[drill["metadata"]["name"]] = made
        return made

    def delete_drill(self, name: str) -> None:
        """Gone once it is undone."""
        if name not in self.deleted:
            self.deleted.append(name)
        if self.undoes:
            self.there.pop(name, None)

    def read_config(self, name: str) -> Object | None:
        """The note with the report."""
        return self.config


def episode(folder: Path) -> tuple[DrillEpisode, Object]:
    """The first one of a run, and its drill."""
    suite = planned(folder)
    return suite.episodes[0], suite.drill(suite.episodes[0])


def course_of(runner: Runner) -> DrillCourse:
    """A course of a runner that is polled without delay."""
    waiting = Waiting(still_ours=lambda: None, poll_s=0.0)
    return DrillCourse(cast(ExperimentCluster, runner), "chat", waiting, lambda _: None)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEEN_S", "PENDING_S", "BESIDE_S", "GONE_S"):
        monkeypatch.setattr(course, name, 0.05)


DONE = status("Done", verdict="Passed", conditions=conditions(Passed="True"))


def played(found: DrillEpisode, *, shows: bool = True) -> EndedDrill:
    """A runner's result for the episode's drill, through its ConfigMap."""
    plan = found.entry.plan
    rows = int(plan.total_s)
    record = move_at(replace(broken_record(rows, 4), incident=step_fault(4.0, rows)), 14)
    record = replace(record, policy=found.configuration.name, seed=found.seed)
    target = ScriptedTarget(episode=record, shows_after=shows)
    outcome = judge(plan, run_drill(plan, target, NotedLedger(target.told), lambda _: None))
    content = json.loads(json.dumps(outcome_content(outcome), allow_nan=False))
    line = json.loads(outcome_line(outcome))
    return EndedDrill(verdict=outcome.verdict.value, reason=outcome.reason, content=content, line=line)


def test_a_report_comes_back_as_the_runner_judged_it(tmp_path: Path) -> None:
    """Measures and lines pass through the ConfigMap unchanged; policy and servers are recorded as well."""
    found, _ = episode(tmp_path)
    result = result_of(found, played(found), "fixed", ("vllm:1",))
    assert result.measures is not None
    assert result.measures.incident is not None
    assert result.measures.incident.mttr_s == 10.0
    assert result.line is not None
    assert len(result.line.at_s) == int(found.entry.plan.total_s)
    assert result.evidence[-1] == "fixed drove"
    assert result.served_by == ("vllm:1",)


def test_what_was_no_experiment_does_not_count(tmp_path: Path) -> None:
    """An unproved fault, a drill ended by its guard, a drill without a report, an unreadable report."""
    found, _ = episode(tmp_path)
    good = played(found)
    assert good.content is not None
    early = replace(good, content={**good.content, "aborted": "outage"})
    stopped = replace(good, content={**good.content, "stopped": "the runner was stopped"})
    broken = replace(good, content={**good.content, "measures": {"scenario": 1}})
    other = replace(good, content={**good.content, "policy": "sequential"})
    bad = [played(found, shows=False), early, stopped, broken, other, replace(good, content=None)]
    results = [result_of(found, one, "fixed", ()) for one in bad]
    assert [one.measures for one in results] == [None] * 6
    assert results[0].verdict == "invalid"
    assert "window is shorter" in results[1].reason
    assert "window is shorter" in results[2].reason
    assert "cannot be read" in results[3].reason
    assert "sequential" in results[4].reason
    assert "no report" in results[5].reason


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of a list the first."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def put(value: Any, path: tuple[Any, ...], other: object) -> Any:
    """``value`` with ``other`` in one place."""
    if not path:
        return other
    key, *rest = path
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[key] = put(value[key], tuple(rest), other)
    return copy


def test_a_foreign_report_ends_no_run(tmp_path: Path) -> None:
    """With any value in any one place, the report counts or it does not, and nothing is raised."""
    found, _ = episode(tmp_path)
    good = played(found)
    assert good.content is not None
    for path in list(places(good.content))[1:]:
        for other in OTHERS:
            result = result_of(found, replace(good, content=put(good.content, path, other)), "fixed", ())
            assert result.measures is None or result.reason
    assert good.line is not None
    for path in list(places(good.line))[1:]:
        for other in OTHERS:
            result_of(found, replace(good, line=put(good.line, path, other)), "fixed", ())


def test_a_drill_is_applied_read_and_deleted(tmp_path: Path) -> None:
    """Its report is that of the same drill; one of an earlier drill with that name does not count."""
    found, drill = episode(tmp_path)
    kept = played(found)
    for uid, expected in (("u", True), ("other", False)):
        runner = Runner({}, status("Pending"), status("Steady"), status("Healing"), DONE)
        note = json.dumps({"uid": uid, "state": "undone", "struck": []})
        runner.config = {"data": {"drill.json": note, REPORT: json.dumps(kept.content), LINE: "null"}}
        ended = course_of(runner).run(drill, found.entry.plan)
        assert (ended.content is not None) is expected
        assert (ended.verdict, ended.reason) == ("passed", "why Passed")
        assert runner.deleted == [drill["metadata"]["name"]]
    assert ledger_name("a") == "selvage-drill-a"


@pytest.mark.parametrize(
    ("statuses", "message"),
    [
        ([{}], "no drill runner"),
        ([status("Pending", conditions=conditions(Accepted="False"))], "not accepted: why Accepted"),
        (
            [status("Pending", conditions=conditions(Accepted="True", ResolvedRefs="False"))],
            "why ResolvedRefs",
        ),
    ],
)
def test_a_drill_that_does_not_begin_ends_the_run_and_is_deleted(
    tmp_path: Path, statuses: list[Object], message: str
) -> None:
    """No operator runs it, it is refused, or its requirements are not met."""
    found, drill = episode(tmp_path)
    runner = Runner(*statuses)
    with pytest.raises(ExperimentError, match=message):
        course_of(runner).run(drill, found.entry.plan)
    assert runner.there == {}


class Unsteady(Runner):
    """A server that leaves two calls in five without an answer, but executes them."""

    def __init__(self, *statuses: Object) -> None:
        super().__init__(*statuses)
        self.silent, self.rng = 0, np.random.Generator(np.random.PCG64(1))

    def __getattribute__(self, name: str) -> Any:
        """As the runner's, but then silent."""
        found = super().__getattribute__(name)
        if name not in ("drills", "drill", "create_drill", "delete_drill", "read_config"):
            return found

        def asked(*given: Any) -> Any:
            answer = found(*given)
            if self.rng.random() < 0.4:
                self.silent += 1
                raise ClusterError("the API server does not answer")
            return answer

        return asked


def test_a_server_that_answers_now_and_then_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unanswered calls are repeated, and executed once."""
    for name in ("SEEN_S", "PENDING_S", "BESIDE_S", "GONE_S"):
        monkeypatch.setattr(course, name, 30.0)
    found, drill = episode(tmp_path)
    runner = Unsteady({}, status("Steady"), status("Steady"), status("Steady"), DONE)
    ended = course_of(runner).run(drill, found.entry.plan)
    assert ended.verdict == "passed"
    assert runner.there == {}
    assert runner.silent > 3


def test_an_interruption_deletes_the_drill(tmp_path: Path) -> None:
    """Whatever ends the wait, the drill is deleted."""
    found, drill = episode(tmp_path)
    runner = Runner(status("Steady"))
    asked: list[int] = []

    def interrupted() -> None:
        asked.append(1)
        if len(asked) == 5:
            raise KeyboardInterrupt

    waiting = Waiting(still_ours=interrupted, poll_s=0.0)
    say: Callable[[str], None] = lambda _: None  # noqa: E731 - a sink
    with pytest.raises(KeyboardInterrupt):
        DrillCourse(cast(ExperimentCluster, runner), "chat", waiting, say).run(drill, found.entry.plan)
    assert runner.there == {}


def test_only_drills_of_this_policy_are_cleared_away() -> None:
    """Drills of other policies and of users stay; an unconfirmed undo is reported."""
    runner = Runner(undoes=False)
    for name, policy in (("ours", "chat"), ("theirs", "other"), ("mine", "")):
        annotations = {OF_POLICY: policy} if policy else {}
        runner.there[name] = {"metadata": {"name": name, "annotations": annotations, "generation": 1}}
    with pytest.raises(ExperimentError, match="undo is not confirmed"):
        course_of(runner).clear()
    assert runner.deleted == ["ours"]
