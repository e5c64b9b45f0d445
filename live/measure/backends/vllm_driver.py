"""One vLLM engine driven by lines of JSON. EDGE: runs inside a vLLM process.

Imports only the standard library, torch and vllm. Requests come on stdin, one JSON object per line
``{"op": ..., ...}``; each gets one reply line on the descriptor named by ``SELVAGE_REPLY_FD`` (stdout belongs
to vLLM's log). Arrays are passed as raw little-endian float32 files, with their shapes in the reply. The
engine runs in this process, so that full-vocabulary log-probabilities are taken directly from its sampler
instead of through its API.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")

import torch
import vllm
from vllm import LLM, SamplingParams


class Capture:
    """Captures the log-probabilities with which the sampler scores prompt tokens.

    ``SamplingParams(prompt_logprobs=-1)`` returns the same numbers as Python objects, two hundred times
    slower.
    """

    def __init__(self, worker: Any) -> None:
        self._sampler = worker.model_runner.sampler
        self._gather = self._sampler.gather_logprobs
        self.rows: list[torch.Tensor] = []

    def __enter__(self) -> Capture:
        def gather(logprobs: Any, *args: Any, **kwargs: Any) -> Any:
            self.rows.append(logprobs.detach().float().cpu())
            return self._gather(logprobs, *args, **kwargs)

        self._sampler.gather_logprobs = gather
        return self

    def __exit__(self, *_: object) -> None:
        del self._sampler.gather_logprobs

    def take(self) -> torch.Tensor:
        """Rows captured since the last call, float32 [positions, vocabulary]."""
        rows, self.rows = self.rows, []
        return torch.cat(rows)


class VllmDriver:
    """The engine and the operations on it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.llm = LLM(**arguments)
        self.engine = self.llm.llm_engine
        self._next_id = 0

    def describe(self) -> dict[str, Any]:
        """Parts of the fingerprint, as the engine reports them."""
        config = self.engine.vllm_config
        return {
            "engine_version": vllm.__version__,
            "torch_version": str(torch.__version__),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "quantization": str(config.model_config.quantization or "none"),
            "kv_cache_dtype": str(config.cache_config.cache_dtype),
            "attention_backend": self._attention_backend(),
            "compile_mode": "eager" if config.model_config.enforce_eager else "compiled",
            "hardware": _hardware(),
            "isa": _capabilities(),
            "system_fingerprint": _system_fingerprint(config),
            "kv_bytes_per_token": self._kv_bytes_per_token(),
            "vocabulary": int(config.model_config.get_vocab_size()),
        }

    def log_probabilities(self, prompts: list[list[int]], path: str) -> dict[str, Any]:
        """Score each prompt alone; writes float32 rows to ``path``: positions 1.. of every prompt."""
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        counts: list[int] = []
        with Capture(self._worker()) as capture, open(path, "wb") as file:
            for ids in prompts:
                self.llm.generate({"prompt_token_ids": ids}, params, use_tqdm=False)
                rows = capture.take()
                counts.append(int(rows.shape[0]))
                file.write(rows.contiguous().numpy().tobytes())
                width = int(rows.shape[1])
        return {"rows": counts, "vocabulary": width}

    def log_probabilities_by_api(self, prompt: list[int]) -> dict[str, Any]:
        """The same through the public API, for one prompt; used to check the capture."""
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=-1, detokenize=False)
        output = self.llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0]
        positions = list(output.prompt_logprobs or [])[1:]
        rows = [[position[i].logprob for i in range(len(position))] for position in positions if position]
        return {"rows": rows}

    def rpc(self, method: str, args: list[Any]) -> dict[str, Any]:
        """Call a worker extension method on every worker; returns the first worker's result."""
        results: list[dict[str, Any]] = self.llm.collective_rpc(method, args=tuple(args))
        return results[0]

    def reset_prefix_cache(self) -> dict[str, Any]:
        """Drop KV blocks computed earlier, for example under another fault."""
        return {"reset": bool(self.llm.reset_prefix_cache())}

    def time_steps(
        self, batch: int, context: int, decode_steps: int, seed: int, clock: str
    ) -> dict[str, Any]:
        """Prefill ``batch`` fresh prompts of ``context`` tokens and decode them together; times every step.

        Each row: [prefill tokens, decoding sequences, context tokens attended, ms]. ``clock`` is
        ``cpu`` (process CPU time, independent of other load) or ``wall``.
        """
        now = time.process_time if clock == "cpu" else time.perf_counter
        generator = torch.Generator().manual_seed(seed)
        width = int(self.engine.vllm_config.model_config.get_vocab_size())
        params = SamplingParams(
            max_tokens=decode_steps + 1, temperature=0.0, ignore_eos=True, detokenize=False
        )
        for _ in range(batch):
            ids = torch.randint(2, width, (context,), generator=generator).tolist()
            self._next_id += 1
            self.engine.add_request(f"timing-{self._next_id}", {"prompt_token_ids": ids}, params)
        rows: list[list[float]] = []
        with StepWatch(self._worker()) as watch:
            while self.engine.has_unfinished_requests():
                started = now()
                self.engine.step()
                spent_ms = (now() - started) * 1000.0
                if watch.seen:
                    rows.append([*watch.take(), spent_ms])
        return {"rows": rows}

    def memory(self) -> dict[str, Any]:
        """Peak bytes of this process (and of its accelerator)."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        device = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        return {"peak_rss_bytes": int(peak), "peak_device_bytes": int(device)}

    def _worker(self) -> Any:
        found: list[Any] = []

        def keep(worker: Any) -> int:
            found.append(worker)
            return 0

        self.llm.collective_rpc(keep)
        return found[0]

    def _attention_backend(self) -> str:
        worker = self._worker()
        groups = getattr(worker.model_runner, "attn_groups", [])
        names = {group.backend.get_name() for row in groups for group in row}
        return ",".join(sorted(names))

    def _kv_bytes_per_token(self) -> int:
        specs = self._worker().model_runner.get_kv_cache_spec()
        return int(sum(spec.page_size_bytes / spec.block_size for spec in specs.values()))


class StepWatch:
    """Records what the scheduler put into each executed step."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.seen: list[tuple[int, int, int]] = []

    def __enter__(self) -> StepWatch:
        run = self._worker.execute_model

        def watched(plan: Any, *args: Any, **kwargs: Any) -> Any:
            if plan.total_num_scheduled_tokens:
                self.seen.append(_step_content(plan))
            return run(plan, *args, **kwargs)

        self._before = self._worker.__dict__.get("execute_model")
        self._worker.__dict__["execute_model"] = watched
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.__dict__.pop("execute_model", None)
        if self._before is not None:
            self._worker.__dict__["execute_model"] = self._before

    def take(self) -> tuple[int, int, int]:
        """Content of the steps since the last call, summed (one step in practice)."""
        seen, self.seen = self.seen, []
        prefill, decode, context = (sum(column) for column in zip(*seen, strict=True))
        return prefill, decode, context


def _step_content(plan: Any) -> tuple[int, int, int]:
    computed = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
    cached = plan.scheduled_cached_reqs
    computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    prefill = decode = context = 0
    for request_id, tokens in plan.num_scheduled_tokens.items():
        if tokens > 1:
            prefill += tokens
        else:
            decode += 1
            context += computed[request_id] + tokens
    return prefill, decode, context


def _hardware() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        return "cpu"
    return models[0] if models else "cpu"


def _capabilities() -> str:
    known = torch.cpu.get_capabilities()
    return ",".join(sorted(name for name, present in known.items() if present is True))


def _system_fingerprint(config: Any) -> str:
    try:
        from vllm.entrypoints.serve.utils.fingerprint import build_system_fingerprint
    except ImportError:
        return ""
    return str(build_system_fingerprint(config) or "")


def main() -> None:
    """Read requests until stdin closes. The first line must be ``{"op": "start", "engine": {...}}``."""
    replies = os.fdopen(int(os.environ["SELVAGE_REPLY_FD"]), "w", encoding="utf-8", buffering=1)
    driver: VllmDriver | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        operation = request.pop("op")
        try:
            if operation == "start":
                driver = VllmDriver(request["engine"])
                outcome = driver.describe()
            else:
                outcome = getattr(driver, operation)(**request)
            reply: dict[str, Any] = {"ok": outcome}
        except Exception as error:  # the caller decides what a failed operation means
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
