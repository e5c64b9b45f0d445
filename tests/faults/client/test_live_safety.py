"""Doses, leases, records and refusals on a real vLLM server."""

from __future__ import annotations

import time

import pytest

from faults.client.dose import KlMeter, inject_with_kl
from faults.client.replica import undo_record
from faults.client.wire import DrillRefusedError, call
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
from tests.faults.inside.test_document import scheduled
from tests.support.servers.drilled_server import TTL_S, Server, measured

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]


def test_a_dose_is_found_by_its_mean_kl(server: Server) -> None:
    """Noise with 0.05 nats mean KL to the replica's own clean answers, within a fifth; then none."""
    prompts = [prompt.token_ids for prompt in load_prompts(SHIPPED_PROMPTS)[::200]][:3]
    meter = KlMeter(server.url, "shipped", prompts)
    assert meter() == 0.0
    fault = scheduled("noise", live={"mean_kl_nats": 0.05})
    _, dose = inject_with_kl(server.faults, fault, meter, TTL_S)
    assert meter() == dose.effect
    assert abs(dose.effect - 0.05) <= 0.01
    assert server.faults.undo().clean
    assert meter() == 0.0


def test_a_lease_that_is_not_renewed_undoes_the_fault(server: Server) -> None:
    """A hang and wrong weights, renewed once and then not, end by themselves."""
    clean = server.text()
    server.faults.inject(measured("noise", relative=0.5), 2.0)
    server.faults.inject(scheduled("hang", name="hang"), 2.0)
    waiting = server.pool.submit(server.text)
    assert server.faults.renew(2.0) > 1.0
    waiting.result()
    deadline = time.monotonic() + 120.0
    while server.faults.status()["injected"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert {"f", "hang"} <= set(server.faults.status()["expired"])
    assert server.text() == clean
    with pytest.raises(DrillRefusedError, match="stays ended"):
        server.faults.renew(2.0)
    server.faults.undo()


def test_another_process_undoes_by_the_record(server: Server) -> None:
    """The file that was written before the injection is all that an undo needs."""
    clean = server.text()
    injected = server.faults.inject(measured("requantise", bits=3), TTL_S)
    assert undo_record(injected.record).clean
    assert server.text() == clean
    assert server.faults.status()["injected"] == []


def test_drill_calls_without_the_token_or_through_a_proxy_are_refused(server: Server) -> None:
    """Refused calls change nothing; vLLM's own remote calls are shut."""
    from faults.inside.gate import TOKEN_HEADER

    body = {"fault": {"name": "f", "kind": "hang"}, "ttl_s": 5.0}
    token = server.started.token_file.read_text()
    for headers in ({}, {TOKEN_HEADER: "wrong"}, {TOKEN_HEADER: token, "x-forwarded-for": "10.0.0.7"}):
        assert call(f"{server.url}/selvage/drill/inject", body, within_s=5.0, headers=headers).status == 403
    rpc = {"method": "selvage_drill_inject", "args": [body["fault"]]}
    assert call(f"{server.url}/collective_rpc", rpc, within_s=5.0).status == 404
    assert server.faults.status()["injected"] == []
