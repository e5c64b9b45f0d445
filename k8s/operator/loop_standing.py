"""What a loop remembers of its turns, and an actuator that stops while the policy is frozen (break-glass)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.ports import RoutingPlan
from k8s.operator.actuator import ClusterActuator
from live.control.loop import Turn

#: The state is stored at once after a move, otherwise after this interval.
KEEP_S = 15.0
#: Interval between attempts after storing failed, so that a server that refuses or is overloaded is not
#: called at every tick.
KEEP_AGAIN_S = 5.0
#: After this long without a stored state, the policy's conditions report it.
UNKEPT_S = 60.0
#: Interval at which the route is read although nothing moved, to detect edits by others.
CHECK_S = 5.0
#: A gateway that made no progress for this long is not expected to accept the current route soon.
BEHIND_S = 30.0


@dataclass(slots=True)
class LoopStanding:
    """Results of the last turn, for status and metrics."""

    turn: Turn | None = None
    frozen: bool = False
    discovery_error: str = ""
    state_problem: str = ""
    kept_version: tuple[int, bytes, tuple[str, ...]] | None = None
    kept_at_s: float = float("-inf")
    keep_problem: str = ""
    """Why the last attempt to store the state failed, "" if it succeeded."""
    unkept_since_s: float = float("nan")
    """Time since which storing the state has failed; NaN if the last attempt succeeded."""
    keep_again_at_s: float = float("-inf")
    checked_at_s: float = float("-inf")
    scraped_at_ms: float = float("nan")
    """Time of the newest scrape of any replica, by the loop's clock; NaN: none yet."""
    programmed: bool = False
    behind: tuple[tuple[str, int], ...] = ()
    """Gateways that have not accepted the current route, with the generation that each observed last."""
    behind_since_s: float = float("nan")
    """Time since which ``behind`` has not changed."""
    unaccepted: bool = False
    """Whether ``behind`` has been unchanged, and not empty, for ``BEHIND_S``."""

    def follow(self, behind: tuple[tuple[str, int], ...], now_s: float) -> None:
        """Update since when the gateways in ``behind`` have made no progress."""
        if behind != self.behind:
            self.behind, self.behind_since_s = behind, now_s
        self.unaccepted = bool(behind) and now_s - self.behind_since_s >= BEHIND_S

    def keeps(self, version: tuple[int, bytes, tuple[str, ...]], now_s: float) -> bool:
        """Whether to store the state, whose version is now ``version``."""
        due = version != self.kept_version or now_s - self.kept_at_s >= KEEP_S
        return due and now_s >= self.keep_again_at_s

    def kept(self, version: tuple[int, bytes, tuple[str, ...]], now_s: float) -> None:
        """Record that the state was stored."""
        self.kept_version, self.kept_at_s = version, now_s
        self.keep_problem, self.unkept_since_s = "", float("nan")

    def unkept(self, problem: str, now_s: float) -> str:
        """Record that storing the state failed with ``problem``. Returns ``problem``, or "" if it is the same
        as at the attempt before.
        """
        if not self.keep_problem:
            self.unkept_since_s = now_s
        news = "" if problem == self.keep_problem else problem
        self.keep_problem, self.keep_again_at_s = problem, now_s + KEEP_AGAIN_S
        return news

    def unkept_for_long(self, now_s: float) -> str:
        """Why no state was stored for at least ``UNKEPT_S``; "" otherwise."""
        return self.keep_problem if now_s - self.unkept_since_s >= UNKEPT_S else ""

    def checks(self, now_s: float, tick_s: float) -> bool:
        """Whether to read the route now although nothing moved; if so, the time is recorded. While a gateway
        is expected to accept the route soon, it is read at every tick (``tick_s``).
        """
        awaited = bool(self.behind) and not self.unaccepted
        if now_s - self.checked_at_s < (0.9 * tick_s if awaited else CHECK_S):
            return False
        self.checked_at_s = now_s
        return True


class SwitchedActuator:
    """Passes plans to the actuator, except while the policy is frozen (break-glass)."""

    def __init__(self, inner: ClusterActuator) -> None:
        self.inner, self.frozen = inner, False
        self._shares: Mapping[str, float] | None = None
        """Shares that were not passed to the actuator yet."""

    def admit(self, shares: Mapping[str, float]) -> None:
        """Set the shares of returning replicas. They reach the actuator with the next plan, so no share
        changes while frozen; before the first confirmed write, they reach it at once.
        """
        self._shares = dict(shares)
        if not self.inner.confirmed:
            self._tell()

    def _tell(self) -> None:
        if self._shares is not None:
            self.inner.admit(self._shares)
            self._shares = None

    @property
    def last_error(self) -> str:
        """Last error of the actuator."""
        return self.inner.last_error

    def apply(self, plan: RoutingPlan) -> bool:
        """Apply ``plan`` by the actuator; while frozen, do nothing and return False."""
        if self.frozen:
            return False
        self._tell()
        return self.inner.apply(plan)
