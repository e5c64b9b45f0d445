"""Parallel jobs: the same results wherever they run, and none is lost with its worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from contracts.errors import DocumentError, LostWorkerError, MissingPartError
from scripts.workers import EVERY_CORE, TRIES, Workers, open_workers, refuse_unknown

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """One Ray of this machine for the tests of this module."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def square(number: int) -> int:
    """A job."""
    return number * number


def refuse(number: int) -> int:
    """A job that fails."""
    raise DocumentError([]) if number == 3 else ValueError(number)


def die_once(folder: Path, number: int) -> int:
    """A job with a worker that is killed at its first run."""
    mark = folder / f"{number}"
    if number % 3 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number)


def die(number: int) -> int:
    """A job that kills its worker every time."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_job_has_its_own_result(jobs: int) -> None:
    """For any number of parallel jobs."""
    with open_workers(Workers(jobs=jobs)) as run:
        first = dict(run(square, range(20)))
        again = dict(run(square, []))
    assert first == {number: number * number for number in range(20)}
    assert again == {}


def test_the_jobs_of_a_lost_worker_run_again(tmp_path: Path) -> None:
    """Workers are killed repeatedly, and every result arrives once."""
    with open_workers(Workers(jobs=2)) as run:
        found = list(run(partial(die_once, tmp_path), range(7)))
    assert sorted(found) == [(number, number * number) for number in range(7)]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_job_that_kills_every_worker_ends_the_run(tmp_path: Path) -> None:
    """After too many consecutive losses the run ends with its own error."""
    with open_workers(Workers(jobs=2)) as run, pytest.raises(LostWorkerError, match=f"{TRIES} times"):
        list(run(die, range(3)))


def test_what_a_job_raises_is_raised() -> None:
    """An error of a job is no loss of a worker."""
    with open_workers(Workers(jobs=2)) as run, pytest.raises(DocumentError):
        list(run(refuse, [3]))


def test_ray_that_is_not_there_is_named() -> None:
    """Without Ray the command that installs it is named; other names are bad input."""
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        with (
            pytest.raises(MissingPartError, match=r"pip install 'selvage-fleet\[ray\]'"),
            open_workers(Workers(jobs=2, backend="ray")),
        ):
            pytest.fail("opened")
    with pytest.raises(DocumentError, match="loky or ray"):
        refuse_unknown("dask", "selvage e5")


@pytest.mark.needs("ray")
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("jobs", [2, EVERY_CORE])
def test_a_local_ray_gives_the_same_results(jobs: int) -> None:
    """Ray's back end runs the same jobs."""
    with open_workers(Workers(jobs=jobs, backend="ray")) as run:
        assert dict(run(square, range(20))) == {number: number * number for number in range(20)}


@pytest.mark.needs("ray")
@pytest.mark.usefixtures("local_ray")
def test_the_jobs_of_a_lost_ray_worker_run_again(tmp_path: Path) -> None:
    """Workers of Ray are killed, and every result arrives once."""
    with open_workers(Workers(jobs=2, backend="ray")) as run:
        found = list(run(partial(die_once, tmp_path), range(7)))
    assert sorted(found) == [(number, number * number) for number in range(7)]


@pytest.mark.needs("ray")
@pytest.mark.usefixtures("local_ray")
def test_what_a_job_of_ray_raises_is_raised() -> None:
    """An error of a job is raised as in this process."""
    with open_workers(Workers(jobs=2, backend="ray")) as run, pytest.raises(DocumentError):
        list(run(refuse, [3]))


@pytest.mark.needs("ray")
@pytest.mark.usefixtures("local_ray")
def test_a_job_that_kills_every_ray_worker_ends_the_run() -> None:
    """Too many consecutive losses end the run with its own error, on Ray too."""
    with (
        open_workers(Workers(jobs=2, backend="ray")) as run,
        pytest.raises(LostWorkerError, match=f"{TRIES} times"),
    ):
        list(run(die, range(3)))
