"""What a loop remembers of its turns, and the break-glass in front of its actuator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.ports import RoutingPlan
from k8s.operator.actuator import ClusterActuator
from live.control.loop import Turn

#: The state is kept at once after a move, else after so long.
KEEP_S = 15.0
#: A state that was not kept is tried again after so long: a server that refuses it, or is short of breath, is
#: not asked at every tick.
KEEP_AGAIN_S = 5.0
#: For so long a state may not be kept until that is said of the policy.
UNKEPT_S = 60.0
#: The route is read again after so long although nothing moved, so that a foreign edit is seen.
CHECK_S = 5.0
#: A gateway that has not gone on for so long is not about to accept the route as it is.
BEHIND_S = 30.0


@dataclass(slots=True)
class LoopStanding:
    """What the last turn left behind, for status and metrics."""

    turn: Turn | None = None
    frozen: bool = False
    discovery_error: str = ""
    state_problem: str = ""
    kept_version: tuple[int, bytes, tuple[str, ...]] | None = None
    kept_at_s: float = float("-inf")
    keep_problem: str = ""
    """Why the state was not kept at the last try, "" where it was."""
    unkept_since_s: float = float("nan")
    """Since when no try succeeded; NaN: the last one did."""
    keep_again_at_s: float = float("-inf")
    checked_at_s: float = float("-inf")
    scraped_at_ms: float = float("nan")
    """Newest scrape of any replica, of the loop's clock; NaN: none yet."""
    programmed: bool = False
    behind: tuple[tuple[str, int], ...] = ()
    """Gateways that have not accepted the route as it is, and how far each was."""
    behind_since_s: float = float("nan")
    """Since when none of them went on."""
    unaccepted: bool = False
    """Whether they are not about to."""

    def follow(self, behind: tuple[tuple[str, int], ...], now_s: float) -> None:
        """Note since when gateways have not gone on."""
        if behind != self.behind:
            self.behind, self.behind_since_s = behind, now_s
        self.unaccepted = bool(behind) and now_s - self.behind_since_s >= BEHIND_S

    def keeps(self, version: tuple[int, bytes, tuple[str, ...]], now_s: float) -> bool:
        """Whether the state, which is now of ``version``, is to be kept."""
        due = version != self.kept_version or now_s - self.kept_at_s >= KEEP_S
        return due and now_s >= self.keep_again_at_s

    def kept(self, version: tuple[int, bytes, tuple[str, ...]], now_s: float) -> None:
        """Note that it was."""
        self.kept_version, self.kept_at_s = version, now_s
        self.keep_problem, self.unkept_since_s = "", float("nan")

    def unkept(self, problem: str, now_s: float) -> str:
        """Note that it was not, for ``problem``; that, where it was not said yet."""
        if not self.keep_problem:
            self.unkept_since_s = now_s
        news = "" if problem == self.keep_problem else problem
        self.keep_problem, self.keep_again_at_s = problem, now_s + KEEP_AGAIN_S
        return news

    def unkept_for_long(self, now_s: float) -> str:
        """Why no state was kept for ``UNKEPT_S``, "" where that is not so."""
        return self.keep_problem if now_s - self.unkept_since_s >= UNKEPT_S else ""

    def checks(self, now_s: float, tick_s: float) -> bool:
        """Whether the route is to be read although nothing moved; noted where it is. At every tick of
        ``tick_s`` while a gateway is about to accept it.
        """
        awaited = bool(self.behind) and not self.unaccepted
        if now_s - self.checked_at_s < (0.9 * tick_s if awaited else CHECK_S):
            return False
        self.checked_at_s = now_s
        return True


class SwitchedActuator:
    """The actuator behind the break-glass: while it is broken, no plan is taken."""

    def __init__(self, inner: ClusterActuator) -> None:
        self.inner, self.frozen = inner, False
        self._shares: Mapping[str, float] | None = None
        """That the actuator was not told yet."""

    def admit(self, shares: Mapping[str, float]) -> None:
        """As the actuator, with the next plan that is taken: nobody's part changes while the glass is broken,
        but for what was never written.
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
        """Of the actuator."""
        return self.inner.last_error

    def apply(self, plan: RoutingPlan) -> bool:
        """As the actuator, unless the glass is broken."""
        if self.frozen:
            return False
        self._tell()
        return self.inner.apply(plan)
