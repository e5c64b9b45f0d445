"""Linear layers of narrow weights: what they multiply by, and what is refused. On a CPU."""

from __future__ import annotations

import pytest

from contracts.errors import MeasurementError

pytestmark = [pytest.mark.needs("torch", "transformers")]


@pytest.mark.parametrize(
    ("quantization", "largest"),
    [("fp8_per_channel", 0.05), ("fp8_per_tensor", 0.05), ("int8_per_channel", 0.02)],
)
def test_a_narrow_layer_multiplies_as_its_weights_do(quantization: str, largest: float) -> None:
    """For few and many rows, any leading shape, with and without bias: off by the rounding of rows alone."""
    import torch

    from live.measure.backends.narrow_linear import NarrowLinear, narrow_layers

    torch.manual_seed(0)
    for bias in (False, True):
        inner = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Linear(64, 32, bias=bias)])})
        network = torch.nn.ModuleDict({"model": inner.to(torch.bfloat16)}).requires_grad_(False)
        wide = inner["layers"][0]
        narrow_layers(network, quantization)
        layer = inner["layers"][0]
        assert isinstance(layer, NarrowLinear)
        assert float((layer.rounded() - wide.weight.float()).norm() / wide.weight.float().norm()) < 0.05
        for shape in ((1, 64), (2, 3, 64), (40, 64)):
            rows = torch.randn(shape, dtype=torch.bfloat16)
            added = 0.0 if wide.bias is None else wide.bias.float()
            wanted = rows.float() @ layer.rounded().t() + added
            got = layer(rows)
            assert got.shape == (*shape[:-1], 32)
            assert got.dtype == torch.bfloat16
            assert float((got.float() - wanted).norm() / wanted.norm()) < largest


def test_a_layer_that_multiplies_by_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed format that is read otherwise than it was written is no kernel."""
    import torch

    from live.measure.backends import narrow_linear

    network = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Linear(64, 64, bias=False)])})
    whole = torch.nn.ModuleDict({"model": network.to(torch.bfloat16)})
    swapped = narrow_linear.Int8Linear.rounded
    monkeypatch.setattr(narrow_linear.Int8Linear, "rounded", lambda layer: swapped(layer).flip(0))
    with pytest.raises(MeasurementError, match=r"model\.layers\.0"):
        narrow_linear.narrow_layers(whole, "int8_per_channel")


def test_packed_weights_stand_for_the_rounded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """4-bit codes, unpacked again, are within half a step of their group's scale; no wide copy is kept."""
    import torch

    from live.measure.backends.narrow_linear import Int4Linear
    from live.measure.backends.quantize import GROUP

    monkeypatch.setattr(torch, "_convert_weight_to_int4pack", lambda pairs, tiles: pairs)
    wide = torch.nn.Linear(2 * GROUP, 32, bias=False).requires_grad_(False)
    groups, found = wide.weight.unflatten(1, (-1, GROUP)), Int4Linear(wide).rounded()
    step = groups.abs().amax(2, keepdim=True) / 7.0
    assert bool(((found.unflatten(1, (-1, GROUP)) - groups).abs() <= 0.54 * step).all())
