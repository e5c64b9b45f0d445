"""The time that reducing on a GPU saves: a row with a GPU, and a note without one."""

from __future__ import annotations

import json

import pytest

from scripts.bench import reduction
from scripts.bench.reduction import NO_GPU, gpu, measured, run

pytestmark = pytest.mark.needs("torch")


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are null, and their names are those of a machine with one."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = run()
    assert found.pop("device") == NO_GPU
    assert set(found.values()) == {None}
    assert set(found) == set(measured("cpu", 4, 32, lambda: None))
    assert json.loads(json.dumps(gpu()))["gpu_device"] == NO_GPU


def test_both_ways_are_measured_on_a_device_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round waits for the end of the begun work, before and after; the figures are numbers."""
    import torch

    waits: list[None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    real = measured
    monkeypatch.setattr(
        reduction, "measured", lambda _device, *_shape: real("cpu", 4, 32, lambda: waits.append(None))
    )
    found = gpu()
    assert found.pop("gpu_device") == "a card"
    assert all(isinstance(one, float) and one > 0.0 for one in found.values())
    assert len(waits) == 2 * 2 * (reduction.ROUNDS + 1)
