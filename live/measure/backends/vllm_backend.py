"""vLLM back end: one engine in a process of its own, driven by ``vllm_driver`` over pipes.

The interpreter is ``SELVAGE_VLLM_PYTHON``, or else the running one. Works with CPU and GPU builds of vLLM.
The two files that the engine's process loads are staged in a temporary folder, so nothing else of this
project is importable there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from contracts.documents.profile import Fingerprint
from contracts.documents.step_time import StepPoint
from contracts.errors import MeasurementError, MissingPartError
from contracts.home import HOME
from live.measure import checkpoint, kernels
from live.measure.backend import EngineFacts, FullScores, Scores, Session, StepPlan, step_points
from live.measure.backends import quantize
from live.measure.checkpoint import kv_bytes
from live.measure.kernels import EngineOption, FaultDose, Kernel, Variable
from live.measure.prompts import Prompt

_STAGED = {
    HOME / "faults" / "vllm_worker.py": "selvage_vllm_worker.py",
    Path(__file__).with_name("vllm_driver.py"): "selvage_vllm_driver.py",
}
_MODEL_LEN = 1024
#: Scores are passed in files; with few prompts at a time they stay in the page cache.
_PROMPTS_PER_FILE = 24


class VllmBackend:
    """Starts vLLM engines on kernels of the checkpoint at ``model`` (a folder with safetensors)."""

    name = "vllm"
    kernels = kernels.VLLM_KERNELS

    def __init__(self, model: Path, work: Path) -> None:
        self._model = model
        self._work = work

    @contextmanager
    def start(
        self,
        kernel: Kernel,
        *,
        environment: tuple[Variable, ...] = (),
        options: tuple[EngineOption, ...] = (),
    ) -> Iterator[Session]:
        """Start ``kernel`` in a new process; the process ends with the context."""
        folder_of_weights = self._checkpoint(kernel)
        engine = _engine_arguments(folder_of_weights, kernel) | {o.name: o.value for o in options}
        with tempfile.TemporaryDirectory(prefix="selvage-vllm-") as folder:
            driver = _DriverProcess(Path(folder), environment)
            try:
                described = driver.call("start", engine=engine)
                yield VllmSession(
                    driver, described, Path(folder), checkpoint.weights_bytes(folder_of_weights, kernel)
                )
            finally:
                driver.close()

    def _checkpoint(self, kernel: Kernel) -> Path:
        if not kernel.scheme:
            return self._model
        target = self._work / f"checkpoint-{kernel.scheme}"
        if not target.is_dir():
            quantize.quantise_checkpoint(self._model, target, kernel.scheme)
        return target


class VllmSession:
    """One running engine."""

    def __init__(self, driver: _DriverProcess, described: dict[str, Any], folder: Path, weights: int) -> None:
        self._driver = driver
        self._folder = folder
        self.facts = EngineFacts(
            fingerprint=Fingerprint(
                engine="vllm",
                engine_version=described["engine_version"],
                dtype=described["dtype"],
                quantization=described["quantization"],
                kv_cache_dtype=described["kv_cache_dtype"],
                attention_backend=described["attention_backend"],
                compile_mode=described["compile_mode"],
                hardware=described["hardware"],
                isa=described["isa"][:400],
                system_fingerprint=described["system_fingerprint"],
            ),
            weights_bytes=weights,
            kv_bytes_per_token=described["kv_bytes_per_token"],
            vocabulary=described["vocabulary"],
        )

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """Full-vocabulary log-probabilities, prompt by prompt, from the engine's own sampler."""
        for start in range(0, len(prompts), _PROMPTS_PER_FILE):
            yield from self._score_few(prompts[start : start + _PROMPTS_PER_FILE])

    def _score_few(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        path = self._folder / "scores.f32"
        ids = [list(prompt.token_ids) for prompt in prompts]
        answer = self._driver.call("log_probabilities", prompts=ids, path=str(path))
        shape = (sum(answer["rows"]), answer["vocabulary"])
        rows = np.memmap(path, dtype="<f4", mode="r", shape=shape)
        start = 0
        for count, prompt in zip(answer["rows"], prompts, strict=True):
            if count != prompt.positions:
                raise MeasurementError(f"prompt {prompt.id}: {prompt.positions} positions, scored {count}")
            yield FullScores(log_probs=np.array(rows[start : start + count]))
            start += count

    def score_by_api(self, prompt: Prompt) -> FullScores:
        """The same through vLLM's public API; slow, used to check the capture."""
        rows = self._driver.call("log_probabilities_by_api", prompt=list(prompt.token_ids))["rows"]
        return FullScores(log_probs=np.array(rows, dtype=np.float32))

    def reset_prefix_cache(self) -> None:
        """Drop cached KV blocks, which may have been computed under a fault."""
        self._driver.call("reset_prefix_cache")

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        """Median over rounds of every (prefill tokens, sequences, context) kind of step."""
        self._time_round(plan.batches[0], plan.contexts[0], plan, seed=0)  # first steps are cold
        found: dict[tuple[int, int, int], list[float]] = {}
        for turn in range(plan.rounds):
            for batch in plan.batches:
                for context in plan.contexts:
                    seed = 1 + turn * 10_000 + batch * 100 + context
                    for prefill, decode, attended, spent_ms in self._time_round(batch, context, plan, seed):
                        key = (int(prefill), int(decode), int(attended))
                        found.setdefault(key, []).append(spent_ms)
        return step_points(found, plan)

    def canary(self) -> str:
        """Hash over the outputs of every linear layer on fixed inputs."""
        return str(self._rpc("selvage_canary")["sha256"])

    def inject(self, dose: FaultDose) -> None:
        """Call the worker extension, then drop KV blocks computed before the fault."""
        self._rpc(dose.method, *dose.arguments)
        self.reset_prefix_cache()

    def undo(self) -> None:
        """Undo every fault, then drop KV blocks computed under it."""
        self._rpc("selvage_undo")
        self.reset_prefix_cache()

    def peak_bytes(self) -> int:
        """Peak resident bytes of the engine's process, or of its accelerator if it has one."""
        answer = self._driver.call("memory")
        return int(answer["peak_device_bytes"] or answer["peak_rss_bytes"])

    def _rpc(self, method: str, *arguments: float | int | str) -> dict[str, Any]:
        return self._driver.call("rpc", method=method, args=list(arguments))

    def _time_round(self, batch: int, context: int, plan: StepPlan, seed: int) -> list[list[float]]:
        answer = self._driver.call(
            "time_steps",
            batch=batch,
            context=context,
            decode_steps=plan.decode_steps,
            seed=seed,
            clock=plan.clock,
        )
        rows: list[list[float]] = answer["rows"]
        return rows


class _DriverProcess:
    """The child process and its two pipes."""

    def __init__(self, folder: Path, environment: tuple[Variable, ...]) -> None:
        for source, name in _STAGED.items():
            shutil.copy(source, folder / name)
        self._log_path = folder / "engine.log"
        self._log: BinaryIO = self._log_path.open("wb")
        receive, send = os.pipe()
        self._child = subprocess.Popen(
            [vllm_python(), str(folder / "selvage_vllm_driver.py")],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(send,),
            env=_child_environment(folder, send, environment),
            cwd=folder,
            text=True,
            start_new_session=True,
        )
        os.close(send)
        self._replies = os.fdopen(receive, encoding="utf-8")

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and return the reply; MeasurementError with the log's end if the engine fails."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
            self._child.stdin.flush()
            line = self._replies.readline()
        except BrokenPipeError:
            line = ""
        reply: dict[str, Any] = json.loads(line) if line else {"error": "the engine's process ended"}
        if "error" in reply:
            raise MeasurementError(f"vLLM {operation}: {reply['error']}\n{self._log_tail()}")
        answer: dict[str, Any] = reply["ok"]
        return answer

    def close(self) -> None:
        """End the process: close its input, and kill it if it does not end."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._replies.close()
        self._log.close()

    def _log_tail(self, lines: int = 15) -> str:
        self._log.flush()
        text = self._log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def vllm_python() -> str:
    """The interpreter that has vLLM; MissingPartError with a remedy if none is known."""
    named = os.environ.get("SELVAGE_VLLM_PYTHON")
    if named:
        return named
    if find_spec("vllm") is None:
        raise MissingPartError(
            "vLLM is not installed; run `make setup-test`, or point SELVAGE_VLLM_PYTHON at an"
            " interpreter that has it"
        )
    return sys.executable


def _child_environment(folder: Path, descriptor: int, extra: tuple[Variable, ...]) -> dict[str, str]:
    environment = dict(os.environ)
    environment.update(
        PYTHONPATH=str(folder),
        SELVAGE_REPLY_FD=str(descriptor),
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="WARNING",
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
    )
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.update({variable.name: variable.value for variable in extra})
    return environment


def _engine_arguments(folder: Path, kernel: Kernel) -> dict[str, str | int | bool]:
    return {
        "model": str(folder),
        "enforce_eager": not kernel.compiled,
        "max_model_len": _MODEL_LEN,
        "kv_cache_memory_bytes": kv_bytes(folder),
        "max_logprobs": -1,
        "worker_extension_cls": "selvage_vllm_worker.SelvageFaults",
        **{option.name: option.value for option in kernel.options},
    }
