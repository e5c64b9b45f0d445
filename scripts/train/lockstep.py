"""What vector environments over fleets in lock-step share: one world inside, no fleet of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stable_baselines3.common.vec_env import VecEnv


class LockStepVecEnv(VecEnv):
    """``count`` fleets that ``shared`` steps together. Subclasses reset and step."""

    def __init__(self, shared: Any, count: int, observation_space: Any, action_space: Any) -> None:
        self._shared = shared
        super().__init__(count, observation_space, action_space)

    def step_async(self, actions: Any) -> None:
        """Keep ``actions`` for ``step_wait``; nothing runs beside this process."""
        self._actions = actions

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute of what the fleets share, once per fleet asked for."""
        return [getattr(self._shared, attr_name, None) for _ in self._places(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: fleets in lock-step have no attributes of their own."""
        raise NotImplementedError(f"set_attr({attr_name!r}): fleets in lock-step share one environment")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Refused: a method would act on all fleets, not on some."""
        raise NotImplementedError(f"env_method({method_name!r}): fleets in lock-step share one environment")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:  # noqa: ARG002
        """No fleet is wrapped by itself."""
        return [False for _ in self._places(indices)]

    def _places(self, indices: Any) -> Iterable[int]:
        return list(self._get_indices(indices))
