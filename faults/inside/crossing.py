"""Answers crossed between two requests: each client gets what was meant for the other.

The first of two waits for a partner before its answer begins; the whole answers then cross, streamed or not.
"""

from __future__ import annotations

import asyncio

from .asgi import App, Message, Receive, Scope, Send, is_last

_PARTNER_WITHIN_S = 2.0
_COMPLETE_WITHIN_S = 120.0


class _Party:
    """One request of a pair: where its client listens, and whether that client has its answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.partner: asyncio.Future[_Party] = asyncio.get_running_loop().create_future()
        self.answered = asyncio.Event()

    async def deliver(self, message: Message) -> None:
        """Give ``message`` to this party's client."""
        await self._send(message)
        if is_last(message):
            self.answered.set()


class Crossing:
    """Pairs requests as they begin to be answered."""

    def __init__(self) -> None:
        self._waiting: _Party | None = None
        self.crossed = 0
        """Answers that went to the wrong client."""

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whose answer crosses with that of another one if there is one in time."""
        party = _Party(send)
        goal = party

        async def crossed(message: Message) -> None:
            nonlocal goal
            if message["type"] == "http.response.start":
                goal = await self._partner_of(party)
            await goal.deliver(message)

        await app(scope, receive, crossed)
        # The server would close a connection whose application returns before its answer is complete.
        await asyncio.wait_for(party.answered.wait(), _COMPLETE_WITHIN_S)

    async def _partner_of(self, party: _Party) -> _Party:
        """Whose client gets the answer of ``party``: a partner's, or its own where nobody came in time."""
        other, self._waiting = self._waiting, None
        if other is not None and not other.partner.done():
            other.partner.set_result(party)
            self.crossed += 2
            return other
        self._waiting = party
        try:
            return await asyncio.wait_for(party.partner, _PARTNER_WITHIN_S)
        except TimeoutError:
            self._waiting = None if self._waiting is party else self._waiting
            return party
