"""Moves as log lines, without a decision log on a volume."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from k8s.operator.records.journal import open_journal
from k8s.operator.status.log_fields import fields_of
from tests.support.cluster.cluster_worlds import Bench

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]


def test_each_move_is_a_line_with_its_fields(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Each moved weight is a line with policy, route, slice and kernel, followed by its reason."""
    bench.everything()
    operator = bench.operator(journal=partial(open_journal, None))
    with caplog.at_level(logging.INFO, logger="k8s.operator.records.journal"):
        bench.turns(operator, 5)
        assert not [one for one in caplog.records if one.name == "k8s.operator.records.journal"]
        bench.drift["fp8"] = 0.02
        bench.turns(operator, 45)
    told = [one for one in caplog.records if one.name == "k8s.operator.records.journal"]
    about = [fields_of(one) for one in told]
    assert {"policy": "chat", "route": "chat", "slice": "prose", "kernel": "bf16"} in about
    assert any("because" in one.getMessage() for one in told)
