"""Wrong weights in the kernels that are in use: built once, put in and taken out as often as needed. EDGE.

On a CPU vLLM packs a linear weight into an opaque handler and empties the parameter; there the handler is
exchanged (``faults.vllm_worker`` keeps the weights and builds handlers). Elsewhere the parameter is
overwritten in place, so that captured graphs see it, with copies of both states; FP8 parameters too, in the
units of their own scales.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from .. import vllm_worker
from .document import FaultSpec
from .gate import CallRefusedError

#: Weight as loaded -> weight as the fault has it, both float32 of one shape.
Perturb = Callable[[torch.Tensor], torch.Tensor]
#: Between the seeds of two ranks.
_RANKS_APART = 1_000_003


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of the model that one worker holds: ``rank`` of ``count``."""

    rank: int = 0
    count: int = 1

    def is_copy(self, layer: Any) -> bool:
        """True where every rank holds the same whole ``layer``."""
        return self.count > 1 and getattr(layer, "tp_size", self.count) == 1


def shard_of(worker: Any) -> Shard:
    """What vLLM's ``worker`` holds of its model."""
    count = int(worker.parallel_config.world_size)
    return Shard(int(worker.rank) % count, count)


class Swap(Protocol):
    """One layer whose kernel can be exchanged."""

    def put(self, *, faulty: bool) -> None:
        """Use the faulty or the clean kernel from now on."""


class HandlerSwap:
    """A CPU layer: two handlers, of which one is in use."""

    def __init__(self, layer: Any, perturb: Perturb) -> None:
        self._layer, self._clean = layer, layer.cpu_linear
        vllm_worker._rebuild_handler(layer, perturb(layer.selvage_weight))
        self._faulty = layer.cpu_linear
        layer.cpu_linear = self._clean

    def put(self, *, faulty: bool) -> None:
        self._layer.cpu_linear = self._faulty if faulty else self._clean


class ParameterSwap:
    """A parameter in place; copies lie on ``keep_on``: the device where it is exchanged step by step."""

    def __init__(self, layer: Any, perturb: Perturb, keep_on: torch.device) -> None:
        self._weight = layer.weight.data
        self._clean = self._weight.detach().to(keep_on, copy=True)
        self._faulty = _as_stored(perturb(self._weight.detach()), self._weight).to(keep_on)

    def put(self, *, faulty: bool) -> None:
        synchronise(self._weight)
        self._weight.copy_(self._faulty if faulty else self._clean)
        synchronise(self._weight)


def _as_stored(weight: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    limits = torch.finfo(like.dtype)
    return weight.float().clamp(limits.min, limits.max).to(like.dtype)


def synchronise(tensor: torch.Tensor) -> None:
    """Wait for the device of ``tensor``: a lease may end a fault from a thread that is not the engine's."""
    if tensor.device.type != "cpu":
        torch.accelerator.synchronize(tensor.device)


def editable(model: Any, pattern: str) -> Iterator[tuple[str, Any]]:
    """Layers whose name matches ``pattern`` and whose weight is known: packed by vLLM here, or in place."""
    for name, layer in model.named_modules():
        if not re.search(pattern, name):
            continue
        if _is_packed(layer):
            if getattr(layer, "selvage_weight", None) is not None:
                yield name, layer
        elif _is_in_place(layer):
            yield name, layer


def _is_packed(layer: Any) -> bool:
    """True where answers come from a packed handler; a table of embeddings has one too, and never uses it."""
    is_table = isinstance(layer, VocabParallelEmbedding) and not isinstance(layer, ParallelLMHead)
    return hasattr(layer, "cpu_linear") and not is_table


def _is_in_place(layer: Any) -> bool:
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, torch.Tensor) or not hasattr(layer, "quant_method"):
        return False
    return bool(weight.ndim == 2 and weight.numel() > 0 and weight.is_floating_point())


class WeightSwaps:
    """All layers of one shard that one fault exchanges."""

    def __init__(self, model: Any, spec: FaultSpec, shard: Shard) -> None:
        layers = list(editable(model, str(spec.live.get("layers", r"model\.layers"))))
        if not layers:
            raise CallRefusedError("no layer of that name has a weight that can be changed here")
        self._swaps = [_swap(layer, perturb, spec) for layer, perturb in _perturbed(layers, spec, shard)]
        self.is_faulty = False

    def put(self, *, faulty: bool) -> None:
        """Use the faulty or the clean kernels from now on; nothing happens where they are in use."""
        if faulty != self.is_faulty:
            for swap in self._swaps:
                swap.put(faulty=faulty)
            self.is_faulty = faulty

    def __len__(self) -> int:
        return len(self._swaps)


def _swap(layer: Any, perturb: Perturb, spec: FaultSpec) -> Swap:
    if _is_packed(layer):
        return HandlerSwap(layer, perturb)
    step_by_step = bool(spec.trigger.conditions)
    return ParameterSwap(layer, perturb, layer.weight.device if step_by_step else torch.device("cpu"))


def _perturbed(layers: list[tuple[str, Any]], spec: FaultSpec, shard: Shard) -> Iterator[tuple[Any, Perturb]]:
    """Each layer that changes with what changes it; drawn by ``seed``, the same in every run.

    Shards are drawn apart, and what every rank has a copy of is drawn alike on all.
    """
    seed = int(spec.number("seed", 0))
    if spec.kind == "bit_flips":
        yield from _flips(layers, spec, seed, shard)
        return
    alike, apart = (_drawing(seed + each * _RANKS_APART) for each in (-1, shard.rank))
    for _, layer in layers:
        yield layer, _PERTURB[spec.kind](spec, alike if shard.is_copy(layer) else apart)


def _drawing(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _requantise(spec: FaultSpec, _: torch.Generator) -> Perturb:
    top = 2 ** (int(spec.number("bits", 4)) - 1) - 1

    def rounded(weight: torch.Tensor) -> torch.Tensor:
        whole = weight.float()
        scale = (whole.abs().amax(_inputs(weight), keepdim=True) / top).clamp(min=1e-12)
        return (whole / scale).round().clamp(-top - 1, top) * scale

    return rounded


def _inputs(weight: torch.Tensor) -> int:
    """The dimension of the inputs: weights lie channel by channel, but FP8 ones are seen transposed."""
    return min((1, 0), key=weight.stride)


def _noise(spec: FaultSpec, generator: torch.Generator) -> Perturb:
    relative = spec.number("relative", 0.1)

    def noisy(weight: torch.Tensor) -> torch.Tensor:
        whole = weight.float()
        drawn = torch.randn(whole.shape, generator=generator).to(whole.device) * whole.std() * relative
        return torch.where(drawn == 0.0, whole, whole + drawn)  # -0.0 + 0.0 is another byte

    return noisy


def _scale(spec: FaultSpec, _: torch.Generator) -> Perturb:
    factor = spec.number("factor", 1.05)
    return lambda weight: weight.float() * factor


_PERTURB = {"requantise": _requantise, "noise": _noise, "scale": _scale}


def _flips(
    layers: list[tuple[str, Any]], spec: FaultSpec, seed: int, shard: Shard
) -> Iterator[tuple[Any, Perturb]]:
    """Bit ``bit`` of ``count`` weights, drawn over all layers of all ranks; several may hit one layer."""
    generator, count = _drawing(seed), int(spec.number("count", 1))
    owners = torch.randint(shard.count, (count,), generator=_drawing(seed - _RANKS_APART)).tolist()
    draws = torch.randint(len(layers), (count,), generator=generator).tolist()
    mine = [index for index, owner in zip(draws, owners, strict=True) if owner == shard.rank]
    for index in sorted(set(draws)):
        layer_seed = int(torch.randint(2**31, (1,), generator=generator))
        if index in mine:
            yield layers[index][1], _flip(mine.count(index), int(spec.number("bit", 6)), layer_seed)


def _flip(count: int, bit: int, seed: int) -> Perturb:
    def flipped(weight: torch.Tensor) -> torch.Tensor:
        generator = _drawing(seed)
        changed = weight.detach().cpu().clone().contiguous()
        for _ in range(count):
            vllm_worker._flip_one(changed, bit, generator)
        return changed.to(weight.device)

    return flipped
