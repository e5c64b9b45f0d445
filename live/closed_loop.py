"""A closed loop that saturates one server: a fixed number of clients, each of which sends without pause."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Any

from contracts.rng import stream
from live.load import client_library, drawn_tokens

PROMPT_TOKENS, ANSWER_TOKENS = 32, 32
_TIMEOUT_S = 60.0


class Saturation:
    """Context manager: requests are sent from the beginning of the block to its end."""

    def __init__(self, url: str, model: str, clients: int, seed: int) -> None:
        """Completions of ``model`` at ``url``; prompts and answers have fixed lengths."""
        self._url, self._model, self._clients, self._seed = f"{url}/v1/completions", model, clients, seed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        #: Number of answers so far, and of requests that failed.
        self.answers, self.failed = 0, 0

    def __enter__(self) -> Saturation:
        """Start to send."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sending, and wait for the requests under way."""
        self._ending.set()
        self._thread.join()

    def tokens_per_s(self, seconds: float) -> float:
        """Output tokens per second of the answers that end within the next ``seconds``; NaN if a request
        failed.
        """
        began_at_s, answers, failed = time.monotonic(), self.answers, self.failed
        time.sleep(seconds)
        rate = ANSWER_TOKENS * (self.answers - answers) / (time.monotonic() - began_at_s)
        return rate if self.failed == failed else float("nan")

    async def _run(self) -> None:
        http = client_library()
        limits = http.ClientTimeout(total=_TIMEOUT_S)
        async with http.ClientSession(connector=http.TCPConnector(limit=0), timeout=limits) as session:
            await asyncio.gather(*(self._client(session, number) for number in range(self._clients)))

    async def _client(self, session: Any, number: int) -> None:
        rng = stream(self._seed, "saturation", str(number))
        while not self._ending.is_set():
            prompt = drawn_tokens(rng, PROMPT_TOKENS).tolist()
            body = {
                "model": self._model,
                "prompt": prompt,
                "max_tokens": ANSWER_TOKENS,
                "temperature": 0.0,
                "ignore_eos": True,
            }
            try:
                async with session.post(self._url, json=body) as answer:
                    await answer.read()
                    good = answer.status == 200
            except Exception:  # every exception counts as a failed request
                good = False
            self.answers += good
            self.failed += not good
