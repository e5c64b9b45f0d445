"""Actions on a real server during re-admission, over HTTP: flush its prefix cache, compare its answers.

vLLM offers ``/reset_prefix_cache`` only in development mode (``VLLM_SERVER_DEV_MODE=1``). Without it, the
cache is emptied by a restart if this process may restart the server. Otherwise the replica stays out until a
new process serves: probes use cache blocks of their own, so they would pass while users still get poisoned
blocks. With ``unflushed`` the server is verified with its cache unchanged, and this is reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from contracts.telemetry import ProbeOutcome
from controller.healing.records import Flush
from live.bounded_http import whole_answer
from live.probe.answers import Line
from live.probe.golden_answers import GoldenAnswers
from live.probe.kinds import Asking, Echo, GenerationPrompt, PairKind
from live.probe.prefill import ProbeResult, timed_outcome

#: Limits for a single pair of answers, by column. Between two answers of one server they are the size of
#: rounding errors; between an answer and the reference, those of kernels of lower precision. A fault that
#: users notice is far beyond them.
LIMITS: Mapping[str, float] = {
    "generation_kl@top_k": 0.02,
    "generation_gap": 0.5,
    "pair_kl@top_k": 2.0e-3,
    "pair_gap": 0.1,
    "greedy_gap": 0.05,
    "answer_broken": 0.0,
    "nonce_crossed": 0.0,
}
_FLUSH_WITHIN_S = 10.0
_BORN = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
_NOT_OFFERED = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED, httpx.codes.FORBIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The prompts of a verification and their golden answers. limit_s: time limit of each request."""

    prompts: Sequence[GenerationPrompt]
    golden: GoldenAnswers
    limit_s: float

    def __post_init__(self) -> None:
        """Refuse a verification without prompts or time."""
        if not self.prompts or not self.limit_s > 0.0:
            raise ValueError(f"expected prompts and a limit > 0, got {self.limit_s:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMender:
    """``live.heal.playbook.Mender`` of the server at ``line``.

    restarts: restarts the server and waits; None: this process may not restart it. unflushed: if neither
    flush nor restart is possible, verify the server with its cache unchanged.
    """

    line: Callable[[], Line]
    verification: Verification
    restarts: Callable[[], bool] | None = None
    unflushed: bool = False
    #: Start time of the process with the unflushed cache, as the server reports it; empty before the first
    #: call.
    _born_at_s: list[float] = field(default_factory=list, init=False)

    def restart(self) -> tuple[bool, str]:
        """Restart the server if that is allowed."""
        if self.restarts is None:
            return False, "it may not be restarted from here"
        try:
            return (True, "") if self.restarts() else (False, "it did not come back")
        except Exception as error:  # such as a supervisor that is gone; reported as a failed restart
            return False, str(error)[:200]

    def flush(self) -> tuple[Flush, str]:
        """Flush by the server's own endpoint, else by a restart; otherwise report why it is not flushed."""
        try:
            line = self.line()
            answer = whole_answer(line.client, "POST", f"{line.url}/reset_prefix_cache", _FLUSH_WITHIN_S)
        except Exception as error:  # the server is gone, or its address is unknown
            return Flush.FAILED, f"the cache could not be flushed: {type(error).__name__}"
        if answer.status_code == httpx.codes.OK:
            return Flush.FLUSHED, ""
        if answer.status_code not in _NOT_OFFERED:
            return Flush.FAILED, f"the cache could not be flushed: HTTP {answer.status_code}"
        if self.restarts is None:
            return (Flush.NOT_OFFERED, "") if self.unflushed else self._awaited(line)
        restarted, reason = self.restart()
        return (Flush.RESTARTED, "") if restarted else (Flush.FAILED, reason)

    def _awaited(self, line: Line) -> tuple[Flush, str]:
        """``RESTARTED`` if a newer process serves than at the first call."""
        now_at_s = _born_at_s(line)
        if not self._born_at_s and not math.isnan(now_at_s):
            self._born_at_s.append(now_at_s)
        if self._born_at_s and now_at_s > self._born_at_s[0]:
            return Flush.RESTARTED, ""
        step = "start it with VLLM_SERVER_DEV_MODE=1, or restart it to let it come back"
        return Flush.FAILED, f"it offers no flush of its prefix cache, and may not be restarted here; {step}"

    def probe(self, number: int) -> tuple[bool, str]:
        """Probe one prompt cold, from its own cache entry, and from the cache that all requests share."""
        found = self.verification
        prompt = found.prompts[number % len(found.prompts)]
        try:
            line = self.line()
        except Exception as error:  # its address is unknown
            return False, f"not reached: {error}"[:200]
        asking = Asking(line=line, limit_s=found.limit_s, golden=found.golden, echo=Echo())
        answer = timed_outcome(lambda: ProbeResult(None, PairKind().probe(prompt, asking)), found.limit_s)
        if answer.outcome is not ProbeOutcome.ANSWERED:
            return False, answer.told
        return disagreement(answer.named)


def _born_at_s(line: Line) -> float:
    """Start of the server's process, Unix time; NaN if it is not reported."""
    try:
        answer = whole_answer(line.client, "GET", f"{line.url}/metrics", _FLUSH_WITHIN_S)
        found = _BORN.search(answer.text) if answer.status_code == httpx.codes.OK else None
        return float(found.group(1)) if found else math.nan
    except (httpx.HTTPError, ValueError):
        return math.nan


def disagreement(judged: Mapping[str, float]) -> tuple[bool, str]:
    """Whether a pair of answers agrees, and which columns do not. Without measurements it does not agree."""
    beyond = [
        f"{name} {judged[name]:.3g}" for name, most in LIMITS.items() if not judged.get(name, 0.0) <= most
    ]
    if beyond:
        return False, f"beyond what is right: {', '.join(beyond)}"
    measured = "generation_gap" in judged and "pair_gap" in judged
    return (True, "") if measured else (False, "no answer could be compared")
