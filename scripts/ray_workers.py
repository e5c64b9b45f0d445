"""Jobs on a Ray cluster: the one that ``RAY_ADDRESS`` names, or one of this machine for the time of a run.

Ray runs the job of a lost worker, or of a lost node, again; a job that loses its worker as often as
``TRIES`` ends the run. Nodes of a cluster need the same version of this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from contracts.errors import MissingPartError
from scripts.workers import EVERY_CORE, TRIES, Run, call, lost_workers


@contextmanager
def on_ray(jobs: int) -> Iterator[Run]:
    """A runner of at most ``jobs`` jobs at once (``EVERY_CORE``: as many as the cluster has cores).

    Raises MissingPartError where Ray is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingPartError("--backend ray needs Ray; run: pip install 'selvage-fleet[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        ray.init(**_settings(jobs))
    try:
        yield RayRunner(ray, jobs)
    finally:
        if ours:
            ray.shutdown()


def _settings(jobs: int) -> dict[str, Any]:
    """Workers' messages stay in Ray's logs: standard output belongs to results."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if os.environ.get("RAY_ADDRESS"):
        return quiet
    own = {"num_cpus": jobs} if jobs != EVERY_CORE else {}
    return {"include_dashboard": False, **own, **quiet}


class RayRunner:
    """Runs jobs as Ray's tasks, each on one core."""

    def __init__(self, ray: Any, jobs: int) -> None:
        self._ray, self._jobs = ray, jobs

    def __call__(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """(place of the task, result) as they finish; ``work`` is a function of a module.

        Raises what ``work`` raises, and LostWorkerError where one job loses its worker again and again.
        """
        task = self._ray.remote(num_cpus=1, max_retries=TRIES - 1)(call)
        waiting, running = enumerate(tasks), []
        try:
            while True:
                for place, given in waiting:
                    running.append(task.remote(work, place, given))
                    if len(running) == self._jobs:
                        break
                if not running:
                    return
                done, running = self._ray.wait(running, num_returns=1)
                yield self._result(done[0])
        finally:
            for left in running:
                self._ray.cancel(left, force=True)

    def _result(self, done: Any) -> tuple[int, Any]:
        exceptions = self._ray.exceptions
        try:
            place, result = self._ray.get(done)
        except exceptions.RayTaskError as error:
            raise error.cause from None
        except (exceptions.WorkerCrashedError, exceptions.ObjectLostError, exceptions.OutOfMemoryError):
            raise lost_workers() from None
        return place, result
