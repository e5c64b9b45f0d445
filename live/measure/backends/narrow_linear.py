"""Linear layers that multiply fp8, int8 or packed 4-bit weights with torch's own kernels. EDGE: torch.

Weights are rounded to nearest and scaled symmetrically; activations are scaled per row at run time. Every new
layer is compared with the product of its own rounded weights: if a packed format were read in another way
than it is written, the results would be wrong without looking unusual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from contracts.errors import MeasurementError
from live.measure.backends.quantize import GROUP

_FP8_LARGEST, _INT8_LARGEST, _INT4_LARGEST = 448.0, 127.0, 7.0
_INT4_ZERO, _INNER_TILES = 8, 8
#: Fewest rows that the integer product of a GPU accepts.
_LEAST_ROWS = 32
#: Largest relative error against the layer's own rounded weights that 8-bit activations explain.
_LARGEST_ERROR = 0.08
_SMALLEST_SCALE = 1e-12


class NarrowLinear(torch.nn.Module):
    """A linear layer with narrow weights: rows [..., in_features] -> [..., out_features], in ``dtype``."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.dtype, self.bias = layer.weight.dtype, layer.bias

    def rounded(self) -> Any:
        """The weights that the layer represents, float32 [out_features, in_features]."""
        return self.weight.float() * self.scale

    def products(self, rows: Any) -> Any:
        """Products of rows [n, in_features] with the weights, in any float dtype."""
        raise NotImplementedError

    def forward(self, values: Any) -> Any:
        """The layer's output."""
        out = self.products(values.reshape(-1, self.in_features)).to(self.dtype)
        out = out if self.bias is None else out + self.bias
        return out.reshape(*values.shape[:-1], self.out_features)


class Fp8Linear(NarrowLinear):
    """fp8 e4m3 weights and activations, with a scale per row of each, or one scale for all rows."""

    def __init__(self, layer: Any, *, shared: bool = False) -> None:
        super().__init__(layer)
        self._shared = shared
        weight, scale = self._narrow(layer.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def products(self, rows: Any) -> Any:
        """``torch._scaled_mm`` of rows that are rounded at run time."""
        narrow, scale = self._narrow(rows)
        out = torch.bfloat16
        by = self.scale if self._shared else self.scale.t()
        return torch._scaled_mm(narrow, self.weight.t(), scale_a=scale, scale_b=by, out_dtype=out)

    def _narrow(self, values: Any) -> tuple[Any, Any]:
        wide = values.float()
        scale = _scale(wide, _FP8_LARGEST, None if self._shared else 1)
        return (wide / scale).clamp(-_FP8_LARGEST, _FP8_LARGEST).to(torch.float8_e4m3fn), scale


class Int8Linear(NarrowLinear):
    """int8 weights per channel, int8 activations per token."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        weight, scale = _int8(layer.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def products(self, rows: Any) -> Any:
        """``torch._int_mm``; if there are too few rows, zeros are appended."""
        narrow, scale = _int8(rows)
        count = len(narrow)
        padded = torch.nn.functional.pad(narrow, (0, 0, 0, max(0, _LEAST_ROWS - count)))
        return torch._int_mm(padded, self.weight.t())[:count].float() * scale * self.scale.t()


class Int4Linear(NarrowLinear):
    """4-bit weights in groups along the input, bfloat16 activations; packed for torch's GPU kernel."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        groups = layer.weight.detach().float().unflatten(1, (-1, GROUP))
        scale = _scale(groups, _INT4_LARGEST, 2).to(torch.bfloat16)
        whole = (groups / scale.float()).round().clamp(-_INT4_ZERO, _INT4_LARGEST)
        codes = (whole.flatten(1) + _INT4_ZERO).to(torch.uint8)
        self._pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).contiguous()
        self.register_buffer("weight", torch._convert_weight_to_int4pack(self._pairs, _INNER_TILES))
        both = torch.stack([scale[..., 0], torch.zeros_like(scale[..., 0])], dim=-1)
        self.register_buffer("scale", both.transpose(0, 1).contiguous())

    def rounded(self) -> Any:
        """The weights that the layer represents."""
        codes = torch.stack([self._pairs >> 4, self._pairs & 15], dim=-1).flatten(1)
        groups = (codes.float() - _INT4_ZERO).unflatten(1, (-1, GROUP))
        return (groups * self.scale[..., :1].transpose(0, 1).float()).flatten(1)

    def products(self, rows: Any) -> Any:
        """``torch._weight_int4pack_mm``."""
        return torch._weight_int4pack_mm(rows.to(torch.bfloat16), self.weight, GROUP, self.scale)


_MAKERS: dict[str, Callable[[Any], NarrowLinear]] = {
    "fp8_per_channel": Fp8Linear,
    "fp8_per_tensor": lambda layer: Fp8Linear(layer, shared=True),
    "int8_per_channel": Int8Linear,
    "int4_group64": Int4Linear,
}


def narrow_layers(network: Any, quantization: str) -> None:
    """Replace every linear layer inside the model's blocks; embeddings and the head stay.

    Raises MeasurementError if a layer's product differs from that of its own rounded weights.
    """
    wide = [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, torch.nn.Linear) and ".layers." in name
    ]
    for name, layer in wide:
        made = _MAKERS[quantization](layer)
        _check(name, made)
        above, _, last = name.rpartition(".")
        setattr(network.get_submodule(above), last, made)


def _check(name: str, layer: NarrowLinear) -> None:
    """Check that a layer multiplies by the weights that it reports."""
    weights = layer.rounded()
    rows = torch.randn(_LEAST_ROWS, layer.in_features, generator=torch.Generator().manual_seed(0))
    rows = rows.to(weights.device)
    with torch.inference_mode():
        wanted, got = rows @ weights.t(), layer.products(rows.to(layer.dtype)).float()
        error = float((got - wanted).norm() / wanted.norm())
    if not error <= _LARGEST_ERROR:
        raise MeasurementError(
            f"{name}: the narrow product differs from that of its own weights by {error:.3f} of its size,"
            f" at most {_LARGEST_ERROR} is rounding; this build of torch packs weights otherwise"
        )


def _int8(values: Any) -> tuple[Any, Any]:
    """int8 values and float32 scales [rows, 1]."""
    wide = values.float()
    scale = _scale(wide, _INT8_LARGEST, 1)
    return (wide / scale).round().clamp(-_INT8_LARGEST, _INT8_LARGEST).to(torch.int8), scale


def _scale(values: Any, largest: float, axis: int | None) -> Any:
    """float32 scale along ``axis`` that maps the largest magnitude to ``largest``; None: one scale,
    [1, 1].
    """
    top = values.abs().amax().reshape(1, 1) if axis is None else values.abs().amax(axis, keepdim=True)
    return (top / largest).clamp(min=_SMALLEST_SCALE)
