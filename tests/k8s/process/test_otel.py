"""Verdicts as OpenTelemetry events, read from an exporter in memory."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from k8s.operator.status.outcomes import MOST, Evaluated, Evaluations
from k8s.process.logs import event_sink
from live.control.loop import Turn
from tests.support.paths import ROOT


def turn(*failing: tuple[int, int, int], clauses: int = 2) -> tuple[Any, Turn]:
    """A set-up with two kernels, two slices and ``clauses`` clauses, and a turn with ``failing`` in alarm."""
    layout = SimpleNamespace(kernels=("fp8", "bf16"), slices=("prose", "numbers"))
    contract = SimpleNamespace(clause_ids=tuple(f"N-{n}" for n in range(clauses)))
    alarm = np.zeros((1, 2, 2, clauses), dtype=np.bool_)
    for place in failing:
        alarm[(0, *place)] = True
    judgement = SimpleNamespace(alarm=alarm, excess=np.where(alarm, 1.5, 0.25))
    unused = cast(Any, None)
    decision = cast(Any, SimpleNamespace(judgement=judgement))
    setup = SimpleNamespace(layout=layout, contract=contract)
    return setup, Turn(number=1, at_s=0.0, before=unused, after=unused, decision=decision)


def told(*turns: tuple[Any, Turn]) -> list[Evaluated]:
    """Events of these turns of one policy."""
    found: list[Evaluated] = []
    evaluations = Evaluations(found.append)
    for setup, one in turns:
        evaluations.turned("chat", setup, one)
    return found


def test_an_event_is_sent_when_a_verdict_changes() -> None:
    """A clause emits one event when its alarm starts and one when it ends, and none in between."""
    found = told(turn(), turn((0, 0, 1)), turn((0, 0, 1)), turn(), turn())
    assert [(one.clause, one.kernel, one.slice, one.label) for one in found] == [
        ("N-1", "fp8", "prose", "fail"),
        ("N-1", "fp8", "prose", "pass"),
    ]
    assert [one.excess for one in found] == [1.5, 0.0]


def test_a_turn_sends_a_limited_number_and_the_rest_follows() -> None:
    """If many verdicts change at once, each turn emits at most its limit, and none is lost."""
    places = [(k, s, c) for k in range(2) for s in range(2) for c in range(40)]
    assert len(told(turn(*places, clauses=40))) == MOST
    found = told(*[turn(*places, clauses=40)] * 4)
    assert len(found) == len(set(found)) == 160


def test_events_have_the_names_of_the_semantic_conventions() -> None:
    """An event has the conventions' name and attributes, and names kernel, slice and policy."""
    sdk = pytest.importorskip("opentelemetry.sdk._logs", reason="install the extra otel")
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

    kept, provider = InMemoryLogRecordExporter(), sdk.LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    setup, one = turn((1, 0, 0))
    Evaluations(event_sink(provider)).turned("chat", setup, one)
    (found,) = kept.get_finished_logs()
    assert found.log_record.event_name == "gen_ai.evaluation.result"
    assert dict(found.log_record.attributes or {}) == {
        "gen_ai.evaluation.name": "N-0",
        "gen_ai.evaluation.score.value": 1.5,
        "gen_ai.evaluation.score.label": "fail",
        "selvage.policy": "chat",
        "selvage.kernel": "bf16",
        "selvage.slice": "prose",
    }
    provider.shutdown()


def test_opentelemetry_is_not_imported_unless_configured() -> None:
    """The operator's process does not import OpenTelemetry unless it is configured."""
    code = (
        "import k8s.process.serve, sys; sys.exit(any(one.startswith('opentelemetry') for one in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
