"""Every route revision during a whole promotion, its rollback and deletion: no slice without a kernel."""

from __future__ import annotations

import pytest

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.promotions import CANDIDATE, everything, evidence, promote, until
from tests.support.cluster.route_revisions import assert_never_empty, every_revision

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]


def test_no_revision_of_a_promotion_leaves_a_slice_without_a_kernel(bench: Bench) -> None:
    """Through shadow, canary, full, a new leader, a rollback and a deletion, every rule keeps a kernel."""
    everything(bench)
    operator = bench.operator()
    bench.turns(operator, 3)
    with every_revision(bench) as seen:
        promote(bench, evidence(bench))
        operator.nudge()
        for stage in ("Shadow", "Canary", "Full"):
            until(bench, operator, stage)
        operator = bench.operator()
        bench.turns(operator, 10)
        bench.drift[CANDIDATE] = 0.05
        until(bench, operator, "RolledBack")
        bench.delete("KernelPromotion", CANDIDATE)
        operator.nudge()
        bench.turns(operator, 10)
    assert_never_empty(seen)
    assert any("requestMirror" in str(rule) for found in seen for rule in found["spec"]["rules"])
    assert bench.weights("prose")[f"chat-{CANDIDATE}"] == 0
