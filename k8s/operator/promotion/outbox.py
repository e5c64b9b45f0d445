"""What webhooks are told: every change at least once, each hook in order, with a bounded number of tries.

Nothing waits for a delivery. What a leader leaves undelivered its successor tells again, because the status
names the newest change that was told.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from contracts.documents.promotion import Webhook
from k8s.operator.promotion.calls import Call, HookAnswer, HookCaller, answer_of

_LOG = logging.getLogger(__name__)
#: Calls that are made for one change before it is given up; each waits twice as long as the one before.
TRIES = 8
#: Longest time between two of them.
MOST_WAIT_S = 3600.0
#: Changes that wait for one hook; the oldest is given up for another one.
MOST_WAITING = 32


@dataclass(slots=True)
class _Telling:
    hook: Webhook
    body: bytes
    tries: int = 0
    pending: Future[HookAnswer] | None = None
    tried_at_s: float = float("-inf")

    def due(self, now_s: float) -> bool:
        wait_s = min(self.hook.every_s * 2.0 ** (self.tries - 1), MOST_WAIT_S) if self.tries else 0.0
        return self.pending is None and not 0.0 <= now_s - self.tried_at_s < wait_s


class Outbox:
    """Of every promotion of one operator; only its loop's thread calls it."""

    def __init__(self, caller: HookCaller) -> None:
        self._caller = caller
        self._queues: dict[tuple[str, str], deque[_Telling]] = {}

    def put(self, promotion: str, hook: Webhook, body: bytes) -> None:
        """Tell ``hook`` of a change of ``promotion``; body: JSON."""
        queue = self._queues.setdefault((promotion, hook.name), deque())
        if len(queue) >= MOST_WAITING:
            _give_up(promotion, queue.popleft(), "too many changes wait")
        queue.append(_Telling(hook, body))

    def delivered(self, promotion: str) -> bool:
        """Whether nothing of ``promotion`` waits."""
        return not any(name == promotion for name, _ in self._queues)

    def step(self, now_s: float) -> None:
        """Read what was answered, and call where that is due. Never waits."""
        for key in list(self._queues):
            queue = self._queues[key]
            self._step(key[0], queue, now_s)
            if not queue:
                del self._queues[key]

    def forget(self) -> None:
        """Somebody else tells."""
        for queue in self._queues.values():
            for one in queue:
                if one.pending is not None:
                    one.pending.cancel()
        self._queues.clear()

    def _step(self, promotion: str, queue: deque[_Telling], now_s: float) -> None:
        head = queue[0]
        if head.pending is not None and head.pending.done():
            answer, head.pending = answer_of(head.pending), None
            if answer.agrees or head.tries >= TRIES:
                queue.popleft()
                if not answer.agrees:
                    _give_up(promotion, head, str(answer))
        if queue and queue[0].due(now_s):
            head = queue[0]
            head.tries, head.tried_at_s = head.tries + 1, now_s
            call = Call(url=head.hook.url, body=head.body, timeout_s=head.hook.timeout_s)
            head.pending = self._caller.post(call)


def _give_up(promotion: str, telling: _Telling, why: str) -> None:
    _LOG.warning(
        "promotion %s: webhook %s was not told after %d tries: %s",
        promotion,
        telling.hook.name,
        telling.tries,
        why,
    )
