"""Verifies the replicas that a drill struck, against their own answers before the injection.

The gateway's controller gives traffic back on the same conditions. Here the replica gets requests like those
of users before and during these steps, and its cache is flushed again after an answer that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from contracts.errors import SelvageError
from contracts.rng import stream
from controller.healing.records import Flush, HealingPhase, drill_terms
from faults.client.wire import DrillError, bearer
from faults.drill.outcome import Mended
from faults.drill.plan import HEAL_ATTEMPTS, HEAL_WAIT_S, DrillPlan
from live.drill.fleet import DrillFleet, Front
from live.errors import LiveError
from live.heal.mender import ServerMender, Verification
from live.heal.playbook import Playbook
from live.load import drawn_tokens
from live.probe.answers import Line
from live.probe.generation import FIRST_NUMBER
from live.probe.golden_answers import right_answers
from live.probe.kinds import GenerationPrompt

_PROMPTS, _ANSWER_TOKENS, _LIMIT_S, _SERVES_S = 8, 16, 20.0, 10.0


def mending_prompts() -> tuple[GenerationPrompt, ...]:
    """Prompts of one to four small blocks, of block-aligned and unaligned lengths."""
    rng = stream(0, "drill_mending_prompts")
    lengths = [16 * (1 + number % 4) + (number * 5) % 16 * (number % 2) for number in range(_PROMPTS)]
    ids = [drawn_tokens(rng, length).tolist() for length in lengths]
    return tuple(
        GenerationPrompt(
            number=FIRST_NUMBER + number, slice="", token_ids=tuple(one), max_tokens=_ANSWER_TOKENS
        )
        for number, one in enumerate(ids)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Struck:
    """``live.heal.playbook.Mender`` of a replica that accepts faults; the fault injector flushes
    its cache.
    """

    fleet: DrillFleet
    name: str
    server: ServerMender

    def restart(self) -> tuple[bool, str]:
        """Restart the server; a drill asks for it only after an undo that was not clean."""
        return self.server.restart()

    def flush(self) -> tuple[Flush, str]:
        """Undo again, which flushes the cache and does nothing else. A restarted process has an
        empty cache.
        """
        try:
            undone = self.fleet.faults(self.name).undo()
        except (DrillError, SelvageError) as error:
            serves = self.fleet.await_serving(self.name, _SERVES_S)
            return Flush.FAILED, f"{'not flushed' if serves else 'does not serve'}: {error}"[:200]
        if undone.gone:
            anew = self.fleet.await_serving(self.name, _SERVES_S)
            return (Flush.FLUSHED, "a new process") if anew else (Flush.FAILED, "gone")
        if undone.clean:
            return Flush.FLUSHED, ""
        return Flush.FAILED, "its canary is not that of the clean run"

    def probe(self, number: int) -> tuple[bool, str]:
        """Send one verification request like a user's."""
        return self.server.probe(number)


@dataclass(slots=True)
class Mending:
    """The re-verification of one drill's replicas. Call ``close`` at the end."""

    fleet: DrillFleet
    plan: DrillPlan
    _model: str = ""
    _client: httpx.Client = field(default_factory=httpx.Client)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    _right: dict[str, Verification] = field(default_factory=dict)
    _books: dict[str, Playbook] = field(default_factory=dict)
    _lines: dict[str, list[tuple[float, str]]] = field(default_factory=dict)

    def remember(self, front: Front) -> None:
        """Record the healthy answers of every replica that will be struck.

        Raises MeasurementError if one does not answer correctly, and httpx's errors if it cannot be reached.
        """
        self._model = front.model
        self._client.headers.update(bearer(front.api_key))
        prompts = mending_prompts()
        for name in dict.fromkeys(one for strike in self.plan.strikes for one in strike.replicas):
            golden = right_answers(self._line(name), [one.question() for one in prompts])
            self._right[name] = Verification(prompts=prompts, golden=golden, limit_s=_LIMIT_S)

    def turn(self, struck: Sequence[str], now_s: float) -> tuple[Mended, ...]:
        """Advance one tick for the replicas in ``struck``; the progress of each."""
        for name in struck:
            if name not in self._books:
                book = Playbook(
                    self._mender(name),
                    drill_terms(self.plan.spec.undo, HEAL_WAIT_S, HEAL_ATTEMPTS),
                    self._threads,
                    now_s,
                )
                self._books[name], self._lines[name] = book, [(now_s, f"{name}: {book.line}")]
            if self._books[name].turn(now_s):
                self._lines[name].append((now_s, f"{name}: {self._books[name].line}"))
        return tuple(self._mended(name) for name in struck)

    def close(self) -> None:
        """Stop sending requests."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _mended(self, name: str) -> Mended:
        book = self._books[name]
        healed = {HealingPhase.HEALED: True, HealingPhase.FAILED: False}.get(book.state.phase)
        return Mended(replica=name, healed=healed, told=book.line, lines=tuple(self._lines[name]))

    def _mender(self, name: str) -> _Struck:
        server = ServerMender(line=lambda: self._line(name), verification=self._right[name])
        return _Struck(fleet=self.fleet, name=name, server=server)

    def _line(self, name: str) -> Line:
        found = next((one for one in self.fleet.replicas() if one.name == name), None)
        if found is None:
            raise LiveError(f"{name}: no such replica")
        return Line(self._client, found.url, self._model)
