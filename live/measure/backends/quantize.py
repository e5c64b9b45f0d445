"""Quantised checkpoints from float weights, without a calibration tool. EDGE: torch, safetensors.

Every scheme rounds to nearest, so equal weights give equal bytes. The formats are those of
compressed-tensors (w8a8, w4a16), GPTQ v1 (zero points stored less one) and AWQ (nibbles in the order
0 2 4 6 1 3 5 7); "gptq4" and "awq4" name the file format and kernel, not the calibration algorithm.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text, write_pinned
from contracts.loading.untrusted import MALFORMED
from live.measure.checkpoint import read_config

GROUP = 64
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_LINEAR = re.compile(r"^model\.layers\..*_proj\.weight$")
Tensors = dict[str, Any]


def quantise_checkpoint(source: Path, target: Path, scheme: str) -> Path:
    """Write ``source``, quantised by ``scheme``, to the folder ``target``; returns ``target``.

    Linear weights inside the layers are quantised; embeddings, norms and the head stay. Raises ValueError for
    a weight with an input width that is not a multiple of 64, if the scheme uses groups.
    """
    maker, configuration, others = _MAKERS[scheme]
    tensors: Tensors = {}
    for name, weight in _load(source).items():
        if _LINEAR.match(name):
            tensors |= maker(name.removesuffix(".weight"), weight.float())
        else:
            tensors[name] = weight if others is None else weight.to(others)
    staging = target.with_name(target.name + ".tmp")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    _copy_side_files(source, staging)
    config = read_config(source)
    config["quantization_config"] = configuration()
    write_pinned(staging / "config.json", json_text(config, indent=1).encode())
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, str(staging / "model.safetensors"), metadata={"format": "pt"})
    shutil.rmtree(target, ignore_errors=True)
    os.replace(staging, target)
    return target


def _load(source: Path) -> Tensors:
    tensors: Tensors = {}
    for path in sorted(source.glob("*.safetensors")):
        try:
            tensors |= load_file(str(path))
        except (SafetensorError, OSError, *MALFORMED) as error:
            raise _damaged(path, f"{error}"[:200]) from None
    return tensors


def _damaged(path: Path, actual: str) -> DocumentError:
    return refusal(path, "a safetensors file", actual, "fetch the checkpoint again")


def _copy_side_files(source: Path, target: Path) -> None:
    for path in source.glob("*.json"):
        if path.name not in ("config.json", "training.json", "model.safetensors.index.json"):
            shutil.copy(path, target / path.name)


def _grouped(weight: Any) -> Any:
    rows, columns = weight.shape
    if columns % GROUP:
        raise ValueError(f"input width {columns} is no multiple of the group of {GROUP}")
    return weight.view(rows, columns // GROUP, GROUP)


def _w8a8(name: str, weight: Any) -> Tensors:
    scale = (weight.abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)
    levels = (weight / scale).round().clamp(-127, 127).to(torch.int8)
    return {f"{name}.weight": levels, f"{name}.weight_scale": scale}


def _symmetric4(weight: Any, scale_dtype: Any) -> tuple[Any, Any]:
    """Levels -8..7 int32 [out, in] and scales [out, groups], scales rounded to ``scale_dtype`` first."""
    groups = _grouped(weight)
    scale = (groups.abs().amax(2, keepdim=True) / 7).clamp(min=1e-8).to(scale_dtype).float()
    levels = (groups / scale).round().clamp(-8, 7).view(weight.shape).to(torch.int32)
    return levels, scale.squeeze(2).to(scale_dtype)


def _w4a16(name: str, weight: Any) -> Tensors:
    levels, scale = _symmetric4(weight, torch.bfloat16)
    return {
        f"{name}.weight_packed": _pack(levels + 8),
        f"{name}.weight_scale": scale,
        f"{name}.weight_shape": torch.tensor(list(weight.shape), dtype=torch.int64),
    }


def _gptq4(name: str, weight: Any) -> Tensors:
    levels, scale = _symmetric4(weight, torch.float16)
    rows, columns = weight.shape
    zeros = torch.full((columns // GROUP, rows), 7, dtype=torch.int32)
    return {
        f"{name}.qweight": _pack(levels + 8).t().contiguous(),
        f"{name}.qzeros": _pack(zeros),
        f"{name}.scales": scale.t().contiguous(),
        f"{name}.g_idx": torch.arange(columns, dtype=torch.int32) // GROUP,
    }


def _awq4(name: str, weight: Any) -> Tensors:
    groups = _grouped(weight)
    high, low = groups.amax(2, keepdim=True), groups.amin(2, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-6).to(torch.float16).float()
    zero = (-low / scale).round().clamp(0, 15)
    levels = ((groups / scale).round() + zero).clamp(0, 15).view(weight.shape)
    return {
        f"{name}.qweight": _pack(levels.t(), _AWQ_ORDER),
        f"{name}.qzeros": _pack(zero.squeeze(2).t(), _AWQ_ORDER),
        f"{name}.scales": scale.squeeze(2).t().contiguous().to(torch.float16),
    }


def _pack(levels: Any, order: tuple[int, ...] = tuple(range(8))) -> Any:
    """Pack eight levels 0..15 along the last axis into each int32; ``order``: the level in each nibble."""
    rows, columns = levels.shape
    nibbles = levels.to(torch.int64).reshape(rows, columns // 8, 8)
    packed = torch.zeros(rows, columns // 8, dtype=torch.int64)
    for position, index in enumerate(order):
        packed |= nibbles[:, :, index] << (4 * position)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def _compressed(form: str, weights: dict[str, Any], activations: dict[str, Any] | None) -> dict[str, Any]:
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": activations,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def _w8a8_configuration() -> dict[str, Any]:
    common = {"num_bits": 8, "type": "int", "symmetric": True}
    weights = common | {"strategy": "channel", "dynamic": False}
    return _compressed("int-quantized", weights, common | {"strategy": "token", "dynamic": True})


def _w4a16_configuration() -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
    return _compressed("pack-quantized", weights | {"dynamic": False}, None)


def _gptq4_configuration() -> dict[str, Any]:
    form = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
    return form | {"desc_act": False, "sym": True, "lm_head": False}


def _awq4_configuration() -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}


_Maker = Callable[[str, Any], Tensors]
#: scheme -> (tensors of one weight, quantisation block of config.json, dtype of everything else).
_MAKERS: dict[str, tuple[_Maker, Callable[[], dict[str, Any]], Any]] = {
    "w8a8": (_w8a8, _w8a8_configuration, None),
    "w4a16": (_w4a16, _w4a16_configuration, None),
    "gptq4": (_gptq4, _gptq4_configuration, torch.float16),
    "awq4": (_awq4, _awq4_configuration, torch.float16),
}
