"""Wrong weights in parameters that are overwritten in place, as on GPUs, here on tensors of the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from faults.inside.document import WEIGHT_KINDS, fault_of

# Importing vLLM alone takes longer than a test may on a busy machine.
pytestmark = [
    pytest.mark.needs("vllm", "torch"),
    pytest.mark.slow,
    pytest.mark.waits,
]


def _model(dtype: Any) -> Any:
    import torch

    model = torch.nn.Module()
    for name in ("up", "down"):
        layer = torch.nn.Module()
        generator = torch.Generator().manual_seed(len(name))
        weight = torch.randn(16, 32, generator=generator).to(dtype)
        layer.weight = torch.nn.Parameter(weight, requires_grad=False)
        layer.quant_method = object()
        model.add_module(name, layer)
    return model


def _bytes(model: Any) -> bytes:
    import torch

    return b"".join(bytes(p.detach().view(torch.uint8).numpy().tobytes()) for p in model.parameters())


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("trigger", [{}, {"min_batch_size": 4}])
def test_weights_in_place_come_back_bit_for_bit(kind: str, dtype: str, trigger: dict[str, int]) -> None:
    """Injected and undone repeatedly, the faulty weights differ and the clean ones equal the first."""
    import torch

    from faults.inside.weights import Shard, WeightSwaps

    model = _model(getattr(torch, dtype))
    clean, place = _bytes(model), model.up.weight.data_ptr()
    live = {"layers": "up", "bits": 3, "relative": 0.5, "factor": 1.5, "bit": 5, "count": 3}
    swaps = WeightSwaps(
        model, fault_of({"name": "f", "kind": kind, "trigger": trigger, "live": live}), Shard()
    )
    assert _bytes(model) == clean
    for _ in range(2):
        swaps.put(faulty=True)
        faulty = _bytes(model)
        assert faulty[: len(clean) // 2] != clean[: len(clean) // 2]
        assert faulty[len(clean) // 2 :] == clean[len(clean) // 2 :]
        swaps.put(faulty=False)
        assert _bytes(model) == clean
    assert model.up.weight.data_ptr() == place
    assert all(torch.isfinite(p.float()).all() for p in model.parameters())


def test_a_name_that_no_layer_has_is_refused() -> None:
    """A fault that would change nothing is refused."""
    import torch

    from faults.inside.gate import CallRefusedError
    from faults.inside.weights import Shard, WeightSwaps

    with pytest.raises(CallRefusedError, match="no layer"):
        WeightSwaps(
            _model(torch.float32),
            fault_of({"name": "f", "kind": "noise", "live": {"layers": "nothing"}}),
            Shard(),
        )


def _faulty(shard: tuple[int, int], kind: str, copies: int | None = None, **live: object) -> list[Any]:
    """The layers of a model as one shard's fault sees them; copies: vLLM's ranks of a layer."""
    import torch

    from faults.inside.weights import Shard, WeightSwaps

    model = _model(torch.float32)
    if copies is not None:
        model.up.tp_size = copies
    spec = fault_of({"name": "f", "kind": kind, "live": {"layers": "up|down", **live}})
    WeightSwaps(model, spec, Shard(*shard)).put(faulty=True)
    return [model.up.weight, model.down.weight]


def test_noise_is_drawn_apart_for_shards_and_alike_for_copies() -> None:
    """Two ranks with different halves get different noise, and equal noise if both hold the whole."""
    first, second = (_faulty((rank, 2), "noise", relative=0.5) for rank in (0, 1))
    assert not first[0].equal(second[0])
    copied, again = (_faulty((rank, 2), "noise", copies=1, relative=0.5) for rank in (0, 1))
    assert copied[0].equal(again[0])
    assert not copied[1].equal(again[1])
    assert all(map(_same, first, _faulty((0, 1), "noise", relative=0.5)))


def _same(one: Any, other: Any) -> bool:
    return bool(one.equal(other))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_so_many_bits_flip_in_all_ranks_together(ranks: int) -> None:
    """The dose does not grow with the number of workers, and each of them gets a part."""
    import torch

    clean = _model(torch.float32)
    flips = [0] * ranks
    for seed in range(12):
        for rank in range(ranks):
            up, down = _faulty((rank, ranks), "bit_flips", seed=seed, count=3, bit=20)
            flips[rank] += int((up != clean.up.weight).sum() + (down != clean.down.weight).sum())
    assert sum(flips) == 12 * 3
    assert min(flips) > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_noise_of_size_zero_changes_no_byte(dtype: str) -> None:
    """Not even a zero's sign, of which FP8 weights have many."""
    import torch

    from faults.inside.weights import Shard, WeightSwaps

    model = _model(getattr(torch, dtype))
    for parameter in model.parameters():
        parameter.data[:, ::3] = torch.tensor(-0.0).to(parameter.dtype)
    clean = _bytes(model)
    WeightSwaps(
        model, fault_of({"name": "f", "kind": "noise", "live": {"layers": ".", "relative": 0.0}}), Shard()
    ).put(faulty=True)
    assert _bytes(model) == clean


def test_a_weight_is_rounded_by_output_channel_however_it_is_seen() -> None:
    """Transposed, as engines see FP8 weights, it is rounded to the same values: two levels a channel."""
    import torch

    from faults.inside.weights import Shard, WeightSwaps

    spec = fault_of({"name": "f", "kind": "requantise", "live": {"layers": "up", "bits": 2}})
    plain, turned = _model(torch.float32), _model(torch.float32)
    turned.up.weight = torch.nn.Parameter(turned.up.weight.data.t(), requires_grad=False)
    for model in (plain, turned):
        WeightSwaps(model, spec, Shard()).put(faulty=True)
    assert turned.up.weight.t().equal(plain.up.weight)
    assert all(len(channel.abs().unique()) <= 3 for channel in plain.up.weight)
