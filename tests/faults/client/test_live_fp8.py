"""Wrong weights on a real vLLM server whose linear layers compute in FP8: parameters overwritten in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.drilled_server import TTL_S, drilled_server, measured

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]

FP8 = ("--quantization", "fp8_per_channel")
FAULTS = (
    measured("requantise", bits=3),
    measured("noise", relative=0.5),
    measured("scale", factor=1.3),
    measured("bit_flips", bit=7, count=20_000),
)


def test_fp8_weights_are_wrong_and_come_back_bit_for_bit(tmp_path: Path) -> None:
    """Each kind changes answers and canary, its undo brings back both, and noise of size zero neither."""
    with drilled_server(tmp_path, more=FP8) as server:
        clean = server.text(tokens=40)
        for fault in FAULTS:
            injected = server.faults.inject(fault, TTL_S)
            assert server.text(tokens=40) != clean
            assert server.faults.verify(injected).happened
            assert server.faults.undo().clean
            assert server.text(tokens=40) == clean
        nothing = server.faults.inject(measured("noise", relative=0.0), TTL_S)
        assert not server.faults.verify(nothing).happened
        assert server.faults.undo().clean
