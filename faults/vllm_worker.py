"""vLLM worker extension that injects reversible faults. EDGE: runs inside a vLLM process.

Stands alone there: imports only the standard library, torch and vllm. Start vLLM with
``--worker-extension-cls selvage_vllm_worker.SelvageFaults`` (the file is staged under that name) and
call the ``selvage_*`` methods by ``collective_rpc``. Results are plain str, int, float, list and dict,
because vLLM's RPC cannot carry anything else.

On a CPU vLLM packs each linear weight into an opaque oneDNN handler and empties ``layer.weight``: an
edited parameter changes nothing. So this module keeps a copy of each weight while the model loads and
an injection builds a new handler; undo puts the old one back. On other devices it edits the parameter
in place and undo copies the saved bytes back. Either way ``selvage_canary`` (fixed inputs through every
linear layer, hashed) tells whether the kernels in use really changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from vllm.model_executor.layers import utils as layer_utils

_CANARY_ROWS = 8
_pack_linear = layer_utils.dispatch_cpu_unquantized_gemm


def _pack_and_remember(layer: Any, remove_weight: bool) -> None:
    if layer.weight.ndim == 2 and not layer.weight.is_meta:
        layer.selvage_weight = layer.weight.detach().clone()
    _pack_linear(layer, remove_weight)


layer_utils.dispatch_cpu_unquantized_gemm = _pack_and_remember


def _rebuild_handler(layer: Any, weight: torch.Tensor) -> None:
    """Replace a CPU layer's packed kernel by the one vLLM itself builds for ``weight`` [out, in]."""
    holder = torch.nn.Module()
    holder.weight = torch.nn.Parameter(
        weight.to(layer.selvage_weight.dtype).contiguous(), requires_grad=False
    )
    _pack_linear(holder, remove_weight=False)
    kernel: Any = holder.cpu_linear
    layer.cpu_linear = lambda x, _, bias: kernel(x, holder.weight, bias)


class SelvageFaults:
    """Mixed into vLLM's ``Worker``; every attribute carries the prefix ``selvage_``."""

    model_runner: Any

    def selvage_requantise(self, bits: int, pattern: str = r"model\.layers") -> dict[str, Any]:
        """Round weights to ``bits`` symmetric levels per output channel; layers matched by ``pattern``."""
        top = 2 ** (bits - 1) - 1
        count = 0
        for name, layer in self.selvage_layers(pattern):
            weight = self.selvage_original(layer).float()
            scale = (weight.abs().amax(1, keepdim=True) / top).clamp(min=1e-12)
            self.selvage_replace(name, layer, (weight / scale).round().clamp(-top - 1, top) * scale)
            count += 1
        return {"layers": count}

    def selvage_add_noise(self, relative: float, pattern: str, seed: int = 0) -> dict[str, Any]:
        """Add normal noise of ``relative`` standard deviations of each weight; 0 rebuilds unchanged."""
        generator = torch.Generator().manual_seed(seed)
        count = 0
        for name, layer in self.selvage_layers(pattern):
            weight = self.selvage_original(layer).float()
            noise = torch.randn(weight.shape, generator=generator).to(weight.device)
            self.selvage_replace(name, layer, weight + noise * weight.std() * relative)
            count += 1
        return {"layers": count}

    def selvage_flip_bits(
        self, count: int, bit: int, pattern: str = r"model\.layers", seed: int = 0
    ) -> dict[str, Any]:
        """Flip ``bit`` (0 = least significant) of ``count`` weights drawn by ``seed``."""
        generator = torch.Generator().manual_seed(seed)
        layers = list(self.selvage_layers(pattern))
        changed: dict[str, tuple[Any, torch.Tensor]] = {}
        flips: list[list[Any]] = []
        for _ in range(count):
            name, layer = layers[int(torch.randint(len(layers), (1,), generator=generator))]
            if name not in changed:
                changed[name] = (layer, self.selvage_original(layer).clone().contiguous())
            flips.append([name, *_flip_one(changed[name][1], bit, generator)])
        for name, (layer, weight) in changed.items():
            self.selvage_replace(name, layer, weight)
        return {"flips": flips[:16], "count": len(flips)}

    def selvage_slow(self, factor: float = 1.0, extra_ms: float = 0.0) -> dict[str, Any]:
        """Make every step take ``factor`` times its time plus ``extra_ms``; numerics are untouched."""
        run = type(self).execute_model  # type: ignore[attr-defined]

        def slowed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            output = run(self, *args, **kwargs)
            spent_s = time.perf_counter() - started
            time.sleep(spent_s * (factor - 1.0) + extra_ms / 1000.0)
            return output

        self.__dict__["execute_model"] = slowed
        return {"factor": float(factor), "extra_ms": float(extra_ms)}

    def selvage_hang(self, seconds: float) -> dict[str, Any]:
        """Let every later step sleep first; ``/health`` of the server stays 200."""
        run = type(self).execute_model  # type: ignore[attr-defined]

        def stalled(*args: Any, **kwargs: Any) -> Any:
            time.sleep(seconds)
            return run(self, *args, **kwargs)

        self.__dict__["execute_model"] = stalled
        return {"seconds": float(seconds)}

    def selvage_crash(self, after_s: float = 0.2) -> dict[str, Any]:
        """Kill this process by SIGKILL after the reply has left. Cannot be undone."""
        threading.Timer(after_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        return {"after_s": float(after_s)}

    def selvage_undo(self) -> dict[str, Any]:
        """Put every replaced kernel and step function back; callers verify with the canary."""
        saved: dict[str, Callable[[], None]] = self.__dict__.pop("selvage_saved", {})
        for restore in saved.values():
            restore()
        self.__dict__.pop("execute_model", None)
        return {"restored": len(saved)}

    def selvage_canary(self) -> dict[str, Any]:
        """Hash of fixed inputs through every linear layer in use, whatever its kernel or device."""
        digest = hashlib.sha256()
        generator = torch.Generator().manual_seed(1)
        layers = 0
        for name, layer, width in self.selvage_kernels():
            rows = torch.randn(_CANARY_ROWS, width, generator=generator)
            outcome = layer.quant_method.apply(layer, rows.to(self.selvage_device_dtype()), None)
            digest.update(name.encode())
            digest.update(_bytes_of(outcome))
            layers += 1
        for name, parameter in self.model_runner.model.named_parameters():
            if parameter.numel() and parameter.is_floating_point():
                digest.update(name.encode())
                digest.update(_bytes_of(parameter.detach()))
        return {"sha256": digest.hexdigest(), "layers": layers}

    def selvage_describe(self) -> dict[str, Any]:
        """What can be injected here: layers with a kept weight, and the faults now active."""
        return {
            "injectable": [name for name, _ in self.selvage_layers(".*")],
            "active": sorted(self.__dict__.get("selvage_saved", {})),
            "slowed": "execute_model" in self.__dict__,
        }

    def selvage_layers(self, pattern: str) -> Iterator[tuple[str, Any]]:
        """Linear layers whose unquantised weight is known and whose name matches ``pattern``."""
        for name, layer in self.model_runner.model.named_modules():
            if re.search(pattern, name) and self.selvage_original(layer) is not None:
                yield name, layer

    def selvage_original(self, layer: Any) -> Any:
        """The weight [out, in] as loaded, or None where the layer has none that can be edited."""
        kept = getattr(layer, "selvage_weight", None)
        if kept is not None:
            return kept if hasattr(layer, "cpu_linear") else None
        weight: Any = getattr(layer, "weight", None)
        editable = hasattr(layer, "quant_method") and isinstance(weight, torch.Tensor) and weight.ndim == 2
        if not editable or not weight.numel() or not weight.is_floating_point():
            return None
        layer.selvage_weight_device = layer.__dict__.get("selvage_weight_device", weight.detach().clone())
        return layer.selvage_weight_device

    def selvage_replace(self, name: str, layer: Any, weight: torch.Tensor) -> None:
        """Swap the kernel of ``layer`` for one with ``weight``; remembers the way back, once."""
        saved = self.__dict__.setdefault("selvage_saved", {})
        if hasattr(layer, "cpu_linear"):
            kernel = layer.cpu_linear
            saved.setdefault(name, lambda: setattr(layer, "cpu_linear", kernel))
            _rebuild_handler(layer, weight)
            return
        original = self.selvage_original(layer)
        saved.setdefault(name, lambda: layer.weight.data.copy_(original))
        layer.weight.data.copy_(weight.to(original.dtype))

    def selvage_kernels(self) -> Iterator[tuple[str, Any, int]]:
        """Name, layer and input width of every linear layer, quantised ones included."""
        for name, layer in self.model_runner.model.named_modules():
            width = getattr(layer, "input_size_per_partition", None) or getattr(layer, "embedding_dim", None)
            if width and hasattr(getattr(layer, "quant_method", None), "apply"):
                yield name, layer, int(width)

    def selvage_device_dtype(self) -> Any:
        """A tensor with the device and dtype of the model's activations."""
        return torch.empty(0, dtype=self.model_runner.dtype, device=self.model_runner.device)


def _flip_one(weight: torch.Tensor, bit: int, generator: torch.Generator) -> list[Any]:
    """Flip one bit of one element in place; returns [index, before, after] as plain values."""
    width = 8 * weight.element_size()
    integer = {8: torch.int8, 16: torch.int16, 32: torch.int32}[width]
    words = weight.view(-1).view(integer)
    index = int(torch.randint(words.numel(), (1,), generator=generator))
    before = float(weight.view(-1)[index])
    mask = 1 << bit if bit < width - 1 else -(1 << bit)
    words[index] ^= mask
    return [index, repr(before), repr(float(weight.view(-1)[index]))]


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """What identifies a tensor's content: its bytes, or off the CPU a checksum that is made where it lies."""
    if tensor.device.type != "cpu":
        return repr(_checksums(tensor)).encode()
    flat: bytes = tensor.contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return flat


def _checksums(tensor: torch.Tensor, chunk: int = 1 << 24) -> list[int]:
    """Per chunk the sum of its bytes times odd weights, modulo 2**64: no single changed byte goes unseen."""
    content = tensor.detach().contiguous().view(torch.uint8).flatten()
    weights = 2 * torch.arange(min(chunk, content.numel()), device=tensor.device, dtype=torch.int64) + 1
    weights *= 0x9E3779B97F4A7C15 - 2**64  # odd too; wraps around
    parts = content.split(chunk)
    return [int((part.to(torch.int64) * weights[: part.numel()]).sum()) for part in parts]
