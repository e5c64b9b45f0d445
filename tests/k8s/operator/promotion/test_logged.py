"""Promotions in the decision log: every change of stage or verdict, in one hash chain with the decisions."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from k8s.operator.records.journal import open_journal
from k8s.operator.records.log_space import LogSpace
from live.control.journal import read_log
from live.control.replay import replay
from live.run.options import setup_again
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.promotions import CANDIDATE, everything, evidence, promote, status, until

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]


def of_one_set_up(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that belong to the documents with which the log begins."""
    first = rows[0]["documents"]
    return list(takewhile(lambda row: row["kind"] != "start" or row["documents"] == first, rows))


def test_stages_and_verdicts_stand_in_the_log(bench: Bench, tmp_path: Path) -> None:
    """Each stage and verdict is one row with the stage before it, and decisions replay across these rows."""
    everything(bench)
    promote(bench, evidence(bench))
    operator = bench.operator(journal=partial(open_journal, LogSpace(tmp_path)))
    until(bench, operator, "Canary")
    bench.drift[CANDIDATE] = 0.02
    until(bench, operator, "RolledBack")
    operator.forget()
    rows = read_log(tmp_path / "chat")
    found = [row for row in rows if row["kind"] == "promotion"]
    assert [(row["before"], row["stage"], row["verdict"]) for row in found] == [
        ("Offline", "Shadow", None),
        ("Shadow", "Canary", None),
        ("Canary", "RolledBack", "Failed"),
    ]
    assert {row["subject"] for row in found} == {status(bench)["subject"]}
    assert found[-1]["reason"] == "ContractBroken"
    at_s = [row["now_s"] for row in rows if row["kind"] in ("tick", "promotion")]
    assert at_s == sorted(at_s)
    own = of_one_set_up(rows)
    again = replay(own, setup_again(own[0]["documents"]).setup)
    assert again.identical
    assert again.promotions == sum(row["kind"] == "promotion" for row in own) >= 1
