"""Jobs in this process, in several, or on a Ray cluster, by joblib: results as they finish.

No result depends on where its job ran, nor on how many ran beside it. A job whose worker was lost runs again;
one after whose loss nothing else finishes either, three times, ends the run. No worker outlives its parent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from contracts.errors import DocumentError, LostWorkerError, MissingPartError, Problem
from scripts.guard import die_with

Task = TypeVar("Task")
Result = TypeVar("Result")

#: What ``--backend`` takes.
BACKENDS = ("loky", "ray")
BACKEND_HELP = "joblib back end of --jobs: loky for processes of this machine, ray for a Ray cluster."
#: So often in a row a worker may be lost before anything else has finished.
TRIES = 3
#: Jobs per worker of one round, where a back end gives the results of a round together.
_ROUND = 4
EVERY_CORE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """jobs: how many at once; 1 is this process, ``EVERY_CORE`` what the back end has. backend: joblib's."""

    jobs: int = 1
    backend: str = "loky"

    @property
    def is_here(self) -> bool:
        """Everything runs in this process."""
        return self.jobs == 1 and self.backend == "loky"


class Runner:
    """Runs jobs on the workers that ``opened`` started."""

    def __init__(
        self, parallel: Any = None, round_jobs: int | None = None, lost: tuple[type[Exception], ...] = ()
    ) -> None:
        """parallel: joblib's; None runs here. round_jobs: jobs whose results come together; None: each comes
        when it is finished. lost: what is raised where a worker is gone.
        """
        self._parallel, self._round_jobs, self._lost = parallel, round_jobs, lost

    def __call__(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[int, Result]]:
        """(place of the task, result) as they finish; ``work`` is a function of a module.

        Raises what ``work`` raises, and LostWorkerError where workers are lost again and again.
        """
        left, tries = dict(enumerate(tasks)), 0
        if self._parallel is None:
            yield from ((place, work(task)) for place, task in left.items())
            return
        while left:
            try:
                for place, result in self._round(work, left):
                    del left[place]
                    tries = 0
                    yield place, result
            except self._lost:
                tries += 1
                if tries == TRIES:
                    raise LostWorkerError(
                        f"workers were killed {TRIES} times in a row, most likely for memory; run with fewer "
                        "--jobs or a smaller --batch where there is one (what is finished is kept)"
                    ) from None

    def _round(self, work: Callable[[Task], Result], left: dict[int, Task]) -> Iterator[tuple[int, Result]]:
        import joblib

        calls = [joblib.delayed(_call)(work, place, task) for place, task in left.items()]
        size = self._round_jobs or len(calls)
        for first in range(0, len(calls), size):
            yield from self._parallel(calls[first : first + size])


def _call(work: Callable[[Task], Result], place: int, task: Task) -> tuple[int, Result]:
    return place, work(task)


@contextmanager
def opened(workers: Workers, threads: int | None = None) -> Iterator[Runner]:
    """Workers for the time of a ``with`` block; none where everything runs in this process.

    threads: of numerical libraries in each worker, where the back end can say so.
    Raises MissingPartError for a back end that is not installed, DocumentError for an unknown one.
    """
    if workers.is_here:
        yield Runner()
        return
    joblib = _joblib(workers.backend)
    settings: dict[str, Any] = {"backend": workers.backend, "n_jobs": workers.jobs}
    if workers.backend == "loky":
        settings |= {"initializer": _begin, "initargs": (os.getpid(),), "inner_max_num_threads": threads}
    streams = workers.backend in ("loky", "threading")
    try:
        with joblib.parallel_config(**settings):
            # Nothing is shared by files: what is mapped from one cannot be written to.
            told = "generator_unordered" if streams else "list"
            parallel = joblib.Parallel(return_as=told, batch_size=1, max_nbytes=None)
            together = None if streams else _ROUND * joblib.effective_n_jobs(workers.jobs)
            yield Runner(parallel, together, _losses(workers.backend))
    finally:
        if workers.backend == "loky":
            _end()


def _end() -> None:
    """Let the workers go now: they hold hundreds of megabytes each."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def _joblib(backend: str) -> Any:
    """joblib, with Ray registered where it is asked for."""
    import joblib

    if backend == "ray":
        try:
            from ray.util.joblib import register_ray
        except ModuleNotFoundError:
            raise MissingPartError("--backend ray needs Ray; run: pip install 'ray[default]'") from None
        register_ray()
    return joblib


def refuse_unknown(backend: str, command: str) -> None:
    """DocumentError unless ``--backend`` of ``command`` is one of ``BACKENDS``."""
    if backend not in BACKENDS:
        raise DocumentError([Problem(command, 0, "--backend", "loky or ray", repr(backend), "try loky")])


def _losses(backend: str) -> tuple[type[Exception], ...]:
    """What a back end raises where a worker, or its node, is gone."""
    if backend != "ray":
        return (BrokenProcessPool,)
    from ray.exceptions import ObjectLostError, RayActorError, WorkerCrashedError

    return (RayActorError, WorkerCrashedError, ObjectLostError)


def _begin(parent: int) -> None:
    """Ctrl-C and HUP reach the whole process group; only the parent acts on them. No worker outlives it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with(parent)
