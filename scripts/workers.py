"""Jobs in this process, in several of this machine by joblib, or on a Ray cluster: results as they finish.

No result depends on where its job ran, nor on parallel jobs. A job whose worker was lost runs again; three
consecutive losses without any other finished job end the run. No worker outlives its parent.

The Ray cluster is that of ``RAY_ADDRESS``, or one of this machine for the time of a run. Ray reruns
the job of a lost worker or node; a job that loses its worker ``TRIES`` times ends the
run. Nodes of a cluster need the same version of this package.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from contracts.errors import LostWorkerError, MissingPartError, refusal
from scripts.guard import die_with

Task = TypeVar("Task")
Result = TypeVar("Result")
#: Takes a function and its tasks, gives (place of the task, result) as they finish.
Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[tuple[int, Any]]]

#: Values of ``--backend``.
BACKENDS = ("loky", "ray")
BACKEND_HELP = "What runs --jobs: loky for processes of this machine, ray for a Ray cluster."
#: Largest number of consecutive losses of a worker before another job has finished.
TRIES = 3
EVERY_CORE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """jobs: number in parallel; 1 is this process, ``EVERY_CORE`` all of the back end. backend: joblib's."""

    jobs: int = 1
    backend: str = "loky"

    @property
    def is_here(self) -> bool:
        """Whether everything runs in this process."""
        return self.jobs == 1 and self.backend == "loky"


class Runner:
    """Runs jobs on the workers that ``open_workers`` started."""

    def __init__(self, parallel: Any = None) -> None:
        """parallel: joblib's; None runs here."""
        self._parallel = parallel

    def __call__(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[int, Result]]:
        """(place of the task, result) as they finish; ``work`` is a function of a module.

        Raises the exceptions of ``work``, and LostWorkerError if workers are lost repeatedly.
        """
        left, tries = dict(enumerate(tasks)), 0
        if self._parallel is None:
            yield from ((place, work(task)) for place, task in left.items())
            return
        while left:
            try:
                for place, result in self._parallel(_calls(work, left)):
                    tries = 0
                    if place in left:  # a broken-off round may still deliver results of the next one
                        del left[place]
                        yield place, result
            except BrokenProcessPool:
                tries += 1
                if tries == TRIES:
                    raise _lost_workers() from None


def _lost_workers() -> LostWorkerError:
    """The error for workers that are lost repeatedly."""
    return LostWorkerError(
        f"workers were killed {TRIES} times in a row, most likely for memory; run with fewer "
        "--jobs or a smaller --batch where there is one (what is finished is kept)"
    )


def _calls(work: Callable[[Task], Result], left: dict[int, Task]) -> list[Any]:
    import joblib

    return [joblib.delayed(_call)(work, place, task) for place, task in left.items()]


def _call(work: Callable[[Task], Result], place: int, task: Task) -> tuple[int, Result]:
    """One job, with its place."""
    return place, work(task)


@contextmanager
def open_workers(workers: Workers, threads: int | None = None) -> Iterator[Run]:
    """Workers for the time of a ``with`` block; none if everything runs in this process.

    threads: of numerical libraries in each worker, if the back end supports it.
    Raises MissingPartError for a back end that is not installed.
    """
    if workers.is_here:
        yield Runner()
    elif workers.backend == "ray":
        with _on_ray(workers.jobs) as run:
            yield run
    else:
        import joblib

        settings = {"initializer": _begin, "initargs": (os.getpid(),), "inner_max_num_threads": threads}
        try:
            with joblib.parallel_config(backend="loky", n_jobs=workers.jobs, **settings):
                # Nothing is shared by files: a memory-mapped array cannot be written to.
                yield Runner(joblib.Parallel(return_as="generator_unordered", batch_size=1, max_nbytes=None))
        finally:
            _end()


def _end() -> None:
    """End the workers now: they hold hundreds of megabytes each."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def refuse_unknown(backend: str, command: str) -> None:
    """DocumentError unless ``--backend`` of ``command`` is one of ``BACKENDS``."""
    if backend not in BACKENDS:
        raise refusal(command, "loky or ray", repr(backend), "try loky", path="--backend")


def _begin(parent: int) -> None:
    """Ctrl-C and HUP reach the whole process group; only the parent acts on them. No worker outlives it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with(parent)


@contextmanager
def _on_ray(jobs: int) -> Iterator[Run]:
    """A runner of at most ``jobs`` jobs at once (``EVERY_CORE``: as many as the cluster has cores).

    Raises MissingPartError if Ray is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingPartError("--backend ray needs Ray; run: pip install 'selvage-fleet[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        ray.init(**_ray_settings(jobs))
    try:
        yield _RayRunner(ray, jobs)
    finally:
        if ours:
            ray.shutdown()


def _ray_settings(jobs: int) -> dict[str, Any]:
    """Workers' messages stay in Ray's logs: standard output belongs to results."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if os.environ.get("RAY_ADDRESS"):
        return quiet
    own = {"num_cpus": jobs} if jobs != EVERY_CORE else {}
    return {"include_dashboard": False, **own, **quiet}


class _RayRunner:
    """Runs jobs as Ray's tasks, each on one core."""

    def __init__(self, ray: Any, jobs: int) -> None:
        self._ray, self._jobs = ray, jobs

    def __call__(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """(place of the task, result) as they finish; ``work`` is a function of a module.

        Raises the exceptions of ``work``, and LostWorkerError if one job loses its worker repeatedly.
        """
        task = self._ray.remote(num_cpus=1, max_retries=TRIES - 1)(_call)
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
            raise _lost_workers() from None
        return place, result
