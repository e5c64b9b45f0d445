"""Hand-made quantised checkpoints: what is stored gives the weights back within half a step."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.measure.checkpoint import SHIPPED_MODEL, weights_bytes
from live.measure.kernels import VLLM_KERNELS, kernel_named

pytestmark = pytest.mark.needs("torch")
SCHEMES = ("w8a8", "w4a16", "gptq4", "awq4")
LAYER = "model.layers.1.mlp.down_proj"


def tensors(folder: Path) -> dict[str, Any]:
    """Every tensor of the checkpoint in ``folder``."""
    from safetensors.torch import load_file

    return dict(load_file(str(folder / "model.safetensors")))


def unpack(words: Any, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """Levels 0..15 [rows, 8 * columns] from packed int32 [rows, columns]."""
    unsigned = words.numpy().astype(np.int64) & 0xFFFFFFFF
    levels = np.zeros((*unsigned.shape, 8), dtype=np.int64)
    for position, index in enumerate(order):
        levels[:, :, index] = (unsigned >> (4 * position)) & 15
    return levels.reshape(unsigned.shape[0], -1)


def dequantised(stored: dict[str, Any], scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """The layer's weight [out, in] as stored, and the size of one step per entry."""
    if scheme == "w8a8":
        scale = stored[f"{LAYER}.weight_scale"].numpy()
        weight = stored[f"{LAYER}.weight"].numpy() * scale
        return weight, np.broadcast_to(scale, weight.shape)
    if scheme == "w4a16":
        levels = unpack(stored[f"{LAYER}.weight_packed"]) - 8
        scale = stored[f"{LAYER}.weight_scale"].float().numpy().repeat(64, axis=1)
        return levels * scale, scale
    order = (0, 2, 4, 6, 1, 3, 5, 7) if scheme == "awq4" else tuple(range(8))
    scale = stored[f"{LAYER}.scales"].float().numpy().T.repeat(64, axis=1)
    if scheme == "gptq4":
        return (unpack(stored[f"{LAYER}.qweight"].t().contiguous(), order) - 8) * scale, scale
    zeros = unpack(stored[f"{LAYER}.qzeros"], order).T.repeat(64, axis=1)
    return (unpack(stored[f"{LAYER}.qweight"], order).T - zeros) * scale, scale


@pytest.mark.parametrize("scheme", SCHEMES)
def test_stored_weights_are_within_a_step_of_the_original(tmp_path: Path, scheme: str) -> None:
    """Rounding to nearest moves no weight by more than its own step (half, where nothing is clipped)."""
    from live.measure.backends.quantize import quantise_checkpoint

    original = tensors(SHIPPED_MODEL)[f"{LAYER}.weight"].float().numpy()
    stored = tensors(quantise_checkpoint(SHIPPED_MODEL, tmp_path / scheme, scheme))
    weight, step = dequantised(stored, scheme)
    error = np.abs(weight - original) / step
    assert error.max() < 1.01
    assert np.quantile(error, 0.99) < 0.51


@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_weights_give_equal_bytes(tmp_path: Path, scheme: str) -> None:
    """Quantising is deterministic, names its method, and takes fewer bytes than the floats."""
    from live.measure.backends.quantize import quantise_checkpoint

    digests = set()
    for turn in ("a", "b"):
        folder = quantise_checkpoint(SHIPPED_MODEL, tmp_path / turn, scheme)
        digests.add(hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest())
    assert len(digests) == 1
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] in ("compressed-tensors", "gptq", "awq")
    fewer = weights_bytes(folder, kernel_named(scheme, VLLM_KERNELS))
    assert fewer < weights_bytes(SHIPPED_MODEL, kernel_named("bf16", VLLM_KERNELS))


def test_a_width_that_does_not_divide_is_refused() -> None:
    """Groups of 64 need input widths that are multiples of 64."""
    import torch

    from live.measure.backends.quantize import _MAKERS

    with pytest.raises(ValueError, match="multiple of the group"):
        _MAKERS["w4a16"][0]("layer", torch.zeros(8, 96))
