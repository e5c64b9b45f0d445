"""The life cycle of one replica: started, admitted, ended, restarted by a rule, or given up."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path

from live.errors import LiveError
from live.fleet.admission import Admitted, Credentials, admit
from live.fleet.children import Children
from live.fleet.launchers import Launcher, NotYetError, ServerOrder
from live.fleet.plan import ReplicaPlan, ServerOptions
from live.fleet.processes import ProcessId, process_id
from live.fleet.state import Phase, ServerState
from live.gateway.process import require_free
from live.gateway.table import Upstream
from live.origins import LOOPBACK

_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRule:
    """Restart delays grow by ``factor`` from ``first_s`` to ``longest_s``; a run of ``steady_s`` resets them.

    After ``most`` ends in a row without such a run the server is given up, because it will not start.
    """

    first_s: float = 0.5
    factor: float = 2.0
    longest_s: float = 30.0
    steady_s: float = 60.0
    most: int = 5

    def failures(self, before: int, ran_s: float) -> int:
        """Ends in a row, after one more end that came ``ran_s`` after the server was ready (0: it
        never was).
        """
        return 1 if ran_s >= self.steady_s else before + 1

    def wait_s(self, failures: int) -> float | None:
        """Delay before the restart after ``failures`` ends in a row; None: give up."""
        if failures > self.most:
            return None
        return min(self.longest_s, self.first_s * self.factor ** max(0, failures - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What all servers of a fleet share. start_s: longest time from start to ready."""

    launcher: Launcher
    children: Children
    executor: Executor
    rule: RestartRule
    start_s: float


@dataclass(slots=True)
class Server:
    """One replica. Instants are those of the supervisor's monotonic clock, in s."""

    plan: ReplicaPlan
    options: ServerOptions
    port: int
    log: Path
    phase: Phase = Phase.WAITING
    process: ProcessId | None = None
    nonce: str = ""
    admitted: Admitted | None = None
    up_s: float = 0.0
    starts: int = 0
    failures: int = 0
    note: str = ""
    start_at_s: float = 0.0
    _started_at_s: float = 0.0
    _ready_at_s: float = 0.0
    _admission: Future[Admitted] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def upstream(self) -> Upstream:
        """The server as an upstream of the gateway."""
        return Upstream(replica=self.plan.name, kernel=self.plan.kernel, address=LOOPBACK, port=self.port)

    def state(self) -> ServerState:
        """The server's entry in the state file."""
        admitted = self.admitted or Admitted(fingerprint="", version="", context_tokens=0)
        return ServerState(
            name=self.plan.name,
            kernel=self.plan.kernel,
            url=self.url,
            phase=self.phase,
            process=self.process,
            nonce=self.nonce,
            fingerprint=admitted.fingerprint,
            version=admitted.version,
            context_tokens=admitted.context_tokens,
            up_s=round(self.up_s, 3),
            restarts=max(0, self.starts - 1),
            note=self.note,
            arguments=self.plan.arguments,
        )

    def advance(self, now_s: float, means: ServerSettings) -> bool:
        """Start the server if it is due, or finish its admission; whether anything changed."""
        if self.phase is Phase.WAITING and now_s >= self.start_at_s:
            self._start(now_s, means)
            return True
        if self.phase is Phase.STARTING and self._admission is not None and self._admission.done():
            self._conclude(self._admission, now_s, means)
            return True
        return False

    def abandon(self) -> None:
        """Stop waiting for it, because the fleet ends."""
        self._ended.set()

    def ended(self, code: int, now_s: float, means: ServerSettings) -> None:
        """Its main process ended: kill the rest of its process group, and schedule the restart by
        the rule.
        """
        ran_s = now_s - self._ready_at_s if self.phase is Phase.READY else 0.0
        self._ended.set()
        if self.process is not None:
            means.children.kill(self.process.pid)
            means.children.forget(self.process.pid)
        reason = self.note if self.phase is Phase.STARTING and self.note else f"ended with exit code {code}"
        self._fail(reason, ran_s, now_s, means)

    def _start(self, now_s: float, means: ServerSettings) -> None:
        self.starts += 1
        self.nonce = f"selvage-{secrets.token_hex(8)}"
        self._started_at_s, self._ended = now_s, threading.Event()
        self.admitted, self.note = None, ""
        try:
            require_free(LOOPBACK, self.port, self.plan.name)
            pid = means.launcher.start(self._order())
        except NotYetError as pause:
            self.starts, self.note, self.start_at_s = self.starts - 1, str(pause), now_s + _PAUSE_S
            return
        except (LiveError, OSError) as error:
            self.process = None
            self._fail(str(error), 0.0, now_s, means)
            return
        self.process = process_id(pid)
        if self.process is None:
            self._fail("ended at once", 0.0, now_s, means)
            return
        self.phase = Phase.STARTING
        known = Credentials(
            url=self.url, served_name=self.options.served_name, nonce=self.nonce, timeout_s=means.start_s
        )
        self._admission = means.executor.submit(admit, known, self._ended)

    def _order(self) -> ServerOrder:
        names = ("--served-model-name", self.options.served_name, self.nonce)
        place = ("--host", LOOPBACK, "--port", str(self.port))
        return ServerOrder(
            arguments=(*self.plan.arguments, *place, *names), environment=self.plan.environment, log=self.log
        )

    def _conclude(self, admission: Future[Admitted], now_s: float, means: ServerSettings) -> None:
        self._admission = None
        try:
            self.admitted = admission.result()
        except LiveError as error:
            self.note = str(error)
            if self.process is not None:  # its end will be noticed and leads to the next start
                means.children.kill(self.process.pid)
            return
        self.phase, self._ready_at_s = Phase.READY, now_s
        self.up_s = now_s - self._started_at_s

    def _fail(self, reason: str, ran_s: float, now_s: float, means: ServerSettings) -> None:
        self.process = None
        self.failures = means.rule.failures(self.failures, ran_s)
        wait_s = means.rule.wait_s(self.failures)
        self.phase = Phase.FAILED if wait_s is None else Phase.WAITING
        self.start_at_s = now_s + (wait_s or 0.0)
        self.note = (
            reason if wait_s is not None else f"given up after {self.failures} ends in a row: {reason}"
        )
