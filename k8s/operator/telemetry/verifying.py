"""Verification of pods returning from quarantine: the reference is asked once for the generations to match.

``live.run.readmission`` asks the reference and the pods; this module decides when. Server failures raise
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from controller.healing.records import HealingTerms
from k8s.operator.telemetry.pool_reader import Sensing
from live.control.loop import error_line
from live.errors import LiveError
from live.heal.mender import ServerMender, Verification
from live.run.options import ProbeOptions, ReturnOptions
from live.run.readmission import ReferenceSource, Servers, mender_of, verification

#: Seconds until a reference that could not be asked is asked again.
AGAIN_S = 10.0


class ReferenceVerifier:
    """``k8s.operator.pods.returns.PodVerifier`` for one pool. Call ``close`` at the end.

    unflushed: whether to verify a pod even if its server offers no flush of its prefix cache.
    """

    def __init__(self, asked: ReturnOptions, sensing: Sensing, *, unflushed: bool) -> None:
        self.terms = HealingTerms(verify_probes=asked.verify_probes, readmit_over_s=asked.readmit_over_s)
        self.unverified = ""
        self._sensing, self._unflushed = sensing, unflushed
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="generations")
        self._asked: Future[Verification] | None = None
        self._again_at_s = float("-inf")
        self._found: Verification | None = None
        self._client: httpx.Client | None = None
        self._model = ""

    @property
    def ready(self) -> bool:
        """Whether the reference has answered."""
        return self._found is not None

    def close(self) -> None:
        """Stop asking the reference."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def serve(self, client: httpx.Client, model: str) -> None:
        """Set the client and model name with which pods are asked from now on."""
        self._client, self._model = client, model

    def turn(self, now_s: float, known: Callable[[], ReferenceSource | None], options: ProbeOptions) -> None:
        """Ask the reference if that is due, and take its answer; ``known`` returns the current reference."""
        if self._found is not None:
            return
        if self._asked is not None and self._asked.done():
            self._take(self._asked)
            self._asked = None
        if self._asked is None and self._found is None and now_s >= self._again_at_s:
            self._again_at_s = now_s + AGAIN_S
            source = known()
            if source is not None:
                self._asked = self._threads.submit(verification, options, source)

    def _take(self, asked: Future[Verification]) -> None:
        try:
            self._found = asked.result()
        except Exception as error:  # whatever a server answers, the loop goes on
            self.unverified = f"no generation of the reference to verify pods by: {error_line(error)}"
            return
        self.unverified = ""
        self._threads.shutdown(wait=False)

    def mender(self, slot: str) -> ServerMender:
        """Mender of the pod in ``slot``. Raises LiveError until the reference has answered."""
        if self._found is None or self._client is None:
            raise LiveError(f"{slot}: there is nothing yet to verify it by")
        servers = Servers(
            discovery=self._sensing.discovery, names=(), client=self._client, model=self._model, restart=None
        )
        return mender_of(slot, servers, self._found, unflushed=self._unflushed)
