"""Torch back end: Hugging Face transformers, precision and attention variants, any device. EDGE: torch.

Runs in this process. On an accelerator every linear layer and the attention run there; weight faults
edit the parameters in place, which is what the kernels read, and undo copies the saved bytes back.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from contracts.documents.profile import Fingerprint
from contracts.documents.step_time import StepPoint
from contracts.errors import MeasurementError
from contracts.units import MS_PER_S
from live.measure import checkpoint
from live.measure.backend import EngineFacts, FullScores, Scores, Session, StepPlan, step_points
from live.measure.kernels import EngineOption, FaultDose, Kernel, Variable
from live.measure.prompts import Prompt
from live.measure.reference import require_torch, without_bars
from live.measure.torch_kernels import GPU_KERNELS, TORCH_KERNELS

#: Back ends of torch's scaled_dot_product_attention that a kernel selects by name.
_ATTENTION = {
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
#: Switches of torch.backends.cuda.matmul that change the precision of products.
_PRODUCTS = {"tf32": "allow_tf32", "fp16_accumulation": "allow_fp16_accumulation"}


class TorchBackend:
    """Loads the checkpoint at ``model`` in one dtype and attention implementation at a time."""

    name = "torch"

    def __init__(self, model: Path, device: str = "") -> None:
        self._torch, self._transformers = require_torch()
        self._model = model
        self._device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        self.kernels = TORCH_KERNELS if self._device == "cpu" else (*TORCH_KERNELS, *GPU_KERNELS)

    @contextmanager
    def start(
        self,
        kernel: Kernel,
        *,
        environment: tuple[Variable, ...] = (),
        options: tuple[EngineOption, ...] = (),
    ) -> Iterator[Session]:
        """Load ``kernel`` in this process; its memory is freed when the context ends."""
        if environment or options:
            raise MeasurementError("the torch back end has no restart faults")
        given = {option.name: str(option.value) for option in kernel.options}
        with ExitStack() as numerics:
            if kernel.attention in _ATTENTION:
                numerics.enter_context(self._attention(kernel.attention))
            if "products" in given:
                numerics.enter_context(self._products(given["products"]))
            network = self._network(kernel, given)
            self._try(kernel, network)
            facts = self._facts(kernel, network, given)
            yield TorchSession(network, self._torch, self._device, facts, kernel)

    def _attention(self, name: str) -> Any:
        chosen = self._torch.nn.attention
        return chosen.sdpa_kernel(getattr(chosen.SDPBackend, _ATTENTION[name]))

    @contextmanager
    def _products(self, name: str) -> Iterator[None]:
        matmul, switch = self._torch.backends.cuda.matmul, _PRODUCTS[name]
        before = getattr(matmul, switch)
        setattr(matmul, switch, True)
        try:
            yield
        finally:
            setattr(matmul, switch, before)

    def _network(self, kernel: Kernel, given: dict[str, str]) -> Any:
        with without_bars(self._transformers):
            network = self._transformers.AutoModelForCausalLM.from_pretrained(
                str(self._model),
                dtype=getattr(self._torch, given["dtype"]),
                attn_implementation="sdpa" if kernel.attention in _ATTENTION else kernel.attention,
            )
        network.eval().to(self._device)
        if "quantization" in given:
            from live.measure.backends.narrow_linear import narrow_layers

            narrow_layers(network, given["quantization"])
        return network

    def _try(self, kernel: Kernel, network: Any) -> None:
        """Run one small step, so that unsupported features are reported before anything is measured."""
        ids = self._torch.zeros((1, 2), dtype=self._torch.long, device=self._device)
        try:
            with self._torch.inference_mode():
                network(input_ids=ids, use_cache=False)
        except RuntimeError as error:
            said = (str(error) or type(error).__name__).splitlines()[0]
            raise MeasurementError(
                f"{kernel.name} on {self._device}: torch cannot run it ({said}); choose others by --kernel"
            ) from None

    def _facts(self, kernel: Kernel, network: Any, given: dict[str, str]) -> EngineFacts:
        torch, config, dtype = self._torch, network.config, given["dtype"]
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
        return EngineFacts(
            fingerprint=Fingerprint(
                engine="transformers",
                engine_version=str(self._transformers.__version__),
                dtype=dtype,
                quantization=given.get("quantization", "none"),
                attention_backend=kernel.attention,
                compile_mode="inductor" if kernel.compiled else "eager",
                hardware="cpu" if self._device == "cpu" else str(torch.cuda.get_device_name()),
                isa=",".join([*self._isa(), *([given["products"]] if "products" in given else [])])[:400],
                system_fingerprint=f"torch-{torch.__version__}",
            ),
            weights_bytes=checkpoint.weights_bytes(self._model, kernel),
            kv_bytes_per_token=int(2 * config.num_hidden_layers * heads * width * size),
            vocabulary=int(config.vocab_size),
        )

    def _isa(self) -> list[str]:
        """Instruction sets of the processor, or the compute capability of the GPU."""
        if self._device != "cpu":
            major, minor = self._torch.cuda.get_device_capability()
            return [f"sm_{major}{minor}"]
        known = self._torch.cpu.get_capabilities()
        return sorted(name for name, there in known.items() if there is True)


class TorchSession:
    """One loaded network."""

    def __init__(self, network: Any, torch: Any, device: str, facts: EngineFacts, kernel: Kernel) -> None:
        self._network = network
        self._forward = torch.compile(network, dynamic=True) if kernel.compiled else network
        self._sequences = kernel.sequences
        self._torch = torch
        self._device = device
        self._saved: dict[str, Any] = {}
        self._slow_factor, self._slow_extra_ms = 1.0, 0.0
        self.facts = facts

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """Full-vocabulary log-probabilities, float32, from logits in the kernel's own dtype.

        Each prompt runs alone, or batched with neighbours of equal length if the kernel takes several
        sequences.
        """
        torch = self._torch
        for rows in _alike(prompts, self._sequences):
            with torch.inference_mode():
                ids = torch.tensor([prompt.token_ids for prompt in rows], device=self._device)
                logits = self._forward(input_ids=ids, use_cache=False).logits[:, :-1].float()
                log_probs = torch.log_softmax(logits, dim=-1)
            yield from (FullScores(log_probs=one) for one in log_probs.cpu().numpy())

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        """Median over rounds of prefills and cached decode steps (CPU time only on a CPU)."""
        clock = "wall" if self._device != "cpu" else plan.clock
        self._run(plan.batches[0], plan.contexts[0], plan.decode_steps, clock)
        found: dict[tuple[int, int, int], list[float]] = {}
        for _ in range(plan.rounds):
            for batch in plan.batches:
                for context in plan.contexts:
                    for key, spent_ms in self._run(batch, context, plan.decode_steps, clock):
                        found.setdefault(key, []).append(spent_ms)
        return step_points(found, plan)

    def canary(self) -> str:
        """Hash of fixed inputs through every linear layer, and of every parameter and packed weight."""
        torch, digest = self._torch, hashlib.sha256()
        generator = torch.Generator().manual_seed(1)
        with torch.inference_mode():
            for name, layer in self._network.named_modules():
                if not hasattr(layer, "in_features"):
                    continue
                rows = torch.randn(8, layer.in_features, generator=generator)
                rows = rows.to(self._device, getattr(layer, "dtype", layer.weight.dtype))
                digest.update(name.encode())
                digest.update(self._bytes(layer(rows)))
            for values in (*self._network.parameters(), *self._network.buffers()):
                digest.update(self._bytes(values.detach()))
        return digest.hexdigest()

    def inject(self, dose: FaultDose) -> None:
        """Edit weights in place, or slow every step."""
        actions: dict[str, Callable[..., None]] = {
            "selvage_requantise": self._requantise,
            "selvage_add_noise": self._add_noise,
            "selvage_flip_bits": self._flip_bits,
            "selvage_slow": self._slow,
        }
        if dose.method not in actions:
            raise MeasurementError(f"the torch back end cannot inject {dose.method}")
        actions[dose.method](*dose.arguments)

    def undo(self) -> None:
        """Restore every saved weight and remove the slowing."""
        with self._torch.no_grad():
            for layer, weight in self._saved.values():
                layer.weight.copy_(weight)
        self._saved.clear()
        self._slow_factor, self._slow_extra_ms = 1.0, 0.0

    def peak_bytes(self) -> int:
        """Peak bytes of the accelerator, or else of this process."""
        if self._device != "cpu":
            return int(self._torch.cuda.max_memory_allocated())
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _requantise(self, bits: Any, pattern: Any) -> None:
        top = 2 ** (int(bits) - 1) - 1
        for name, layer in self._linears(pattern):
            weight = layer.weight.detach().float()
            scale = (weight.abs().amax(1, keepdim=True) / top).clamp(min=1e-12)
            self._replace(name, layer, (weight / scale).round().clamp(-top - 1, top) * scale)

    def _add_noise(self, relative: Any, pattern: Any, seed: Any = 0) -> None:
        generator = self._torch.Generator().manual_seed(int(seed))
        for name, layer in self._linears(pattern):
            weight = layer.weight.detach().float()
            noise = self._torch.randn(weight.shape, generator=generator).to(weight.device)
            self._replace(name, layer, weight + noise * weight.std() * float(relative))

    def _flip_bits(self, count: Any, bit: Any, pattern: Any, seed: Any = 0) -> None:
        torch, generator = self._torch, self._torch.Generator().manual_seed(int(seed))
        layers = list(self._linears(pattern))
        changed: dict[str, tuple[Any, Any]] = {}
        for _ in range(int(count)):
            name, layer = layers[int(torch.randint(len(layers), (1,), generator=generator))]
            _, weight = changed.setdefault(name, (layer, layer.weight.detach().clone()))
            words = weight.view(-1).view(torch.int16 if weight.element_size() == 2 else torch.int32)
            mask = 1 << int(bit) if int(bit) < 8 * weight.element_size() - 1 else -(1 << int(bit))
            words[int(torch.randint(words.numel(), (1,), generator=generator))] ^= mask
        for name, (layer, weight) in changed.items():
            self._replace(name, layer, weight)

    def _slow(self, factor: Any, extra_ms: Any = 0.0) -> None:
        self._slow_factor, self._slow_extra_ms = float(factor), float(extra_ms)

    def _replace(self, name: str, layer: Any, weight: Any) -> None:
        self._saved.setdefault(name, (layer, layer.weight.detach().clone()))
        with self._torch.no_grad():
            layer.weight.copy_(weight.to(layer.weight.dtype))

    def _linears(self, pattern: str) -> Iterator[tuple[str, Any]]:
        for name, layer in self._network.named_modules():
            if isinstance(layer, self._torch.nn.Linear) and re.search(pattern, name):
                yield name, layer

    def _bytes(self, tensor: Any) -> bytes:
        return bytes(tensor.contiguous().cpu().view(self._torch.uint8).numpy().tobytes())

    def _run(
        self, batch: int, context: int, decode_steps: int, clock: str
    ) -> Iterator[tuple[tuple[int, int, int], float]]:
        torch = self._torch
        generator = torch.Generator().manual_seed(batch * 1000 + context)
        ids = torch.randint(2, self.facts.vocabulary, (batch, context), generator=generator).to(self._device)
        cache: Any = None
        for step in range(decode_steps + 1):
            started = self._now(clock)
            with torch.inference_mode():
                output = self._forward(input_ids=ids, past_key_values=cache, use_cache=True)
            self._stall(started, clock)
            spent_ms = (self._now(clock) - started) * MS_PER_S
            cache, ids = output.past_key_values, output.logits[:, -1:].argmax(-1)
            attended = batch * (context + step)
            yield ((batch * context, 0, 0) if step == 0 else (0, batch, attended)), spent_ms

    def _stall(self, started: float, clock: str) -> None:
        spent_s = self._now(clock) - started
        time.sleep(spent_s * (self._slow_factor - 1.0) + self._slow_extra_ms / MS_PER_S)

    def _now(self, clock: str) -> float:
        if self._device != "cpu":
            self._torch.cuda.synchronize()
        return time.process_time() if clock == "cpu" else time.perf_counter()


def _alike(prompts: Sequence[Prompt], most: int) -> Iterator[list[Prompt]]:
    """The prompts in order, in groups of at most ``most`` neighbours of equal length."""
    for _, same in groupby(prompts, key=lambda prompt: len(prompt.token_ids)):
        rows = list(same)
        yield from (rows[start : start + most] for start in range(0, len(rows), most))
