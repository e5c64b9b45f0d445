"""Cost of ``selvage kld`` by its routes: ``selvage bench kld``.

A vLLM server of the shipped model (bfloat16; float16 on a processor whose bfloat16 vLLM cannot run) with
the plug-in and ``--max-logprobs -1`` is started on this machine. In alternating rounds the plug-in reduces a
share of the positions, and a sample of that share goes through the public API: over the whole vocabulary
(``prompt_logprobs=-1``), and by the default twenty most probable tokens. Rates are positions per second of
wall time, parsing and reduction included; the reference is stored before and timed separately.
``kl_difference_max`` compares both routes over the whole vocabulary on the same positions. ``gpu_*`` are from
``selvage bench reduction``: reducing on a GPU against copying one side to the host, null without one.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from contracts.errors import MeasurementError
from live.measure.backends.openai_backend import TOP_K
from scripts.bench.reduction import gpu
from scripts.progress import ProgressLine, show_progress

if TYPE_CHECKING:
    from live.kld.positions import PromptPositions
    from live.kld.server import KldServer
    from live.measure.endpoint import Endpoint
    from live.measure.prompts import Prompt
    from live.measure.reference import ReferenceScores

POSITIONS = 100_000
ROUNDS = 5
#: Positions of each round that go through the public API.
SAMPLE = 250
_START_S = 600.0


def run() -> dict[str, object]:
    """Flat figures; ``*_s`` are wall time, ``*_rate`` positions per second."""
    return measured(POSITIONS)


def measured(positions: int) -> dict[str, object]:
    """The figures on at least this many positions."""
    from live.kld.prompts import kld_prompts
    from live.kld.stage import stage
    from live.measure.checkpoint import SHIPPED_MODEL
    from live.measure.reference_store import stored_reference

    prompts = kld_prompts(positions, SHIPPED_MODEL, own=None, other_model=False)
    with tempfile.TemporaryDirectory(prefix="selvage-kld-") as place:
        staged = stage(Path(place) / "plugin", with_token=False)
        with show_progress("reference", len(prompts)) as progress:
            began_at_s = time.monotonic()
            reference = stored_reference(
                staged.references,
                SHIPPED_MODEL,
                prompts,
                device_map="",
                on_prompt=lambda: progress.update(advance=1.0),
            )
            reference_s = time.monotonic() - began_at_s
        with served(staged.environment, Path(place)) as endpoint, show_progress("rounds", ROUNDS) as progress:
            figures = _Rounds(prompts=prompts, reference=reference, endpoint=endpoint).figures(progress)
    figures_of_run = {"reference_s": reference_s, "prompts": len(prompts), "dtype": _dtype()}
    return {**figures, **figures_of_run, **gpu()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """A server with the plug-in, and the prompts that are compared on it."""

    prompts: Sequence[Prompt]
    reference: ReferenceScores
    endpoint: Endpoint

    def figures(self, progress: ProgressLine) -> dict[str, object]:
        """Figures of all rounds; the order within a round alternates."""
        from live.kld.server import connect

        rates: dict[str, list[float]] = {"reduced": [], "public_full": [], "public_top": []}
        spent_s, furthest, kl = 0.0, 0.0, []
        with connect(self.endpoint, "") as server:
            self._reduced(server, [0])  # warm-up: the file is mapped and hashed
            for turn in range(ROUNDS):
                found, took_s = self._round(server, turn)
                for name, each_s in took_s.items():
                    rates[name].append(sum(len(each.values) for each in found[name]) / each_s)
                spent_s += took_s["reduced"]
                furthest = max(furthest, _furthest(found["reduced"], found["public_full"]))
                kl += [each.column("kl") for each in found["reduced"]]
                progress.update(advance=1.0)
        return {
            "positions": int(sum(map(len, kl))),
            "vocabulary": int(self.reference.rows.shape[1]),
            "reduced_s": spent_s,
            **_of_rates(rates),
            "kld_mean": float(np.concatenate(kl).mean()),
            "kl_difference_max": furthest,
            "rounds": ROUNDS,
        }

    def _round(
        self, server: KldServer, turn: int
    ) -> tuple[dict[str, list[PromptPositions]], dict[str, float]]:
        """Results and seconds of each route on the prompts of a round."""
        part = list(range(turn, len(self.prompts), ROUNDS))
        sample = self._sample(part)
        ways = [("reduced", part), ("public_full", sample), ("public_top", sample)]
        found, took_s = {}, {}
        for name, indices in ways if turn % 2 == 0 else reversed(ways):
            began_at_s = time.monotonic()
            found[name] = self._by(name, server, indices)
            took_s[name] = time.monotonic() - began_at_s
        return found, took_s

    def _sample(self, part: list[int]) -> list[int]:
        from live.kld.prompts import spread

        at = {self.prompts[index].id: index for index in part}
        return [at[prompt.id] for prompt in spread([self.prompts[index] for index in part], SAMPLE)]

    def _by(self, name: str, server: KldServer, indices: list[int]) -> list[PromptPositions]:
        if name == "reduced":
            return self._reduced(server, indices)
        return self._public_full(indices) if name == "public_full" else self._public_top(indices)

    def _reduced(self, server: KldServer, indices: list[int]) -> list[PromptPositions]:
        from live.kld.positions import from_reduced
        from live.kld.server import batches

        found: list[PromptPositions] = []
        for batch in batches([self.prompts[index] for index in indices], 64, 4096):
            places = [indices[at] for at in batch]
            members = [self.prompts[place] for place in places]
            numbers = server.reduced(members, self.reference, places)
            found += [from_reduced(one, values) for one, values in zip(members, numbers, strict=True)]
        return found

    def _public_full(self, indices: list[int]) -> list[PromptPositions]:
        """Every token's log-probability as JSON, which is all that the API offers."""
        from live.kld.positions import from_rows
        from live.measure.backends.openai_backend import prompt_rows

        width = int(self.reference.rows.shape[1])
        found: list[PromptPositions] = []
        with self.endpoint.client() as client:
            for index in indices:
                prompt = self.prompts[index]
                body = {"model": self.endpoint.model, "prompt": list(prompt.token_ids), "max_tokens": 1}
                asked: dict[str, Any] = {**body, "temperature": 0.0, "prompt_logprobs": -1}
                rows = prompt_rows(self.endpoint.answer(client, "POST", "/v1/completions", asked))
                whole = np.array([[row[token] for token in range(width)] for row in rows])
                found.append(from_rows(prompt, self.reference.of(index), whole))
        return found

    def _public_top(self, indices: list[int]) -> list[PromptPositions]:
        from live.kld.positions import from_top
        from live.measure.backend import TopScores
        from live.measure.backends.openai_backend import OpenaiBackend

        backend = OpenaiBackend(self.endpoint, top_k=TOP_K)
        members = [self.prompts[index] for index in indices]
        with backend.start(backend.kernels[0]) as session:
            return [
                from_top(self.prompts[index], self.reference.of(index), scores)
                for index, scores in zip(indices, session.score(members), strict=True)
                if isinstance(scores, TopScores)
            ]


def _furthest(left: Sequence[PromptPositions], right: Sequence[PromptPositions]) -> float:
    """Largest difference of a position's KL between two routes, over the prompts of the second."""
    by_id = {each.prompt.id: each for each in left}
    return max(float(np.abs(by_id[each.prompt.id].column("kl") - each.column("kl")).max()) for each in right)


def _of_rates(rates: dict[str, list[float]]) -> dict[str, float]:
    """Median rate of each route, and the speed-up of the reduced route over each other one."""
    flat = {f"{name}_rate": float(np.median(found)) for name, found in rates.items()}
    for name in ("public_full", "public_top"):
        ratios = _ratios(rates["reduced"], rates[name])
        flat |= {f"times_{name}_{part}": value for part, value in ratios.items()}
    return flat


def _ratios(mine: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Median, least and largest speed-up, round by round."""
    each = np.array(mine) / np.array(theirs)
    return {"median": float(np.median(each)), "min": float(each.min()), "max": float(each.max())}


def _dtype() -> str:
    from live.fleet.plan import has_amx, has_gpu

    return "float16" if has_amx() and not has_gpu() else "bfloat16"


@contextmanager
def served(environment: dict[str, str], folder: Path) -> Iterator[Endpoint]:
    """A server of the shipped model with the plug-in, for the time of a ``with`` block."""
    from live.fleet.launchers import server_command, server_environment
    from live.gateway.process import free_ports
    from live.measure.checkpoint import SHIPPED_MODEL
    from live.measure.endpoint import Endpoint

    port, log = free_ports(1)[0], folder / "server.log"
    words = ["--model", str(SHIPPED_MODEL), "--host", "127.0.0.1", "--port", str(port), "--dtype", _dtype()]
    words += ["--served-model-name", "shipped", "--enforce-eager", "--max-logprobs", "-1"]
    words += ["--max-model-len", "1024", "--kv-cache-memory-bytes", "64M", "--disable-uvicorn-access-log"]
    with log.open("wb") as file:
        child = subprocess.Popen(
            server_command("serve", words),
            env=server_environment() | environment,
            stdout=file,
            stderr=file,
            cwd=folder,
        )
    try:
        endpoint = Endpoint(url=f"http://127.0.0.1:{port}", model="shipped", timeout_s=600.0)
        _wait(child, endpoint, log)
        yield endpoint
    finally:
        child.terminate()
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait(child: subprocess.Popen[bytes], endpoint: Endpoint, log: Path) -> None:
    """Wait until it answers; MeasurementError with the end of its log if it does not."""
    deadline_at_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_at_s and child.poll() is None:
        try:
            if httpx.get(f"{endpoint.base}/health", timeout=2.0).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    raise MeasurementError(
        f"the server did not start; its log ends: {log.read_text(errors='replace')[-1500:]}"
    )
