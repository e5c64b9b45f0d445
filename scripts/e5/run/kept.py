"""Finished jobs of E5, kept in the run's folder for a run that resumes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from contracts.loading.untrusted import MALFORMED
from contracts.scoring.measures import EpisodeMeasures
from contracts.scoring.quality import SliceQuality
from scripts.e5.configurations import configuration_key
from scripts.e5.run.jobs import Job, JobResult, compiled
from scripts.partial_results import KeptResults, world_facts

_EPISODES = TypeAdapter(tuple[EpisodeMeasures, ...])


class KeptJobs:
    """The folder of kept jobs of one run; ``tidy`` deletes files that no job of this run uses."""

    def __init__(self, out: Path) -> None:
        self._kept = KeptResults(out / "jobs")

    def load(self, job: Job) -> JobResult | None:
        """The stored result of ``job``; None if it must be run."""
        return read_result(self._kept.load(self._key(job)), job)

    def save(self, job: Job, result: JobResult) -> None:
        """Keep ``result`` of ``job``."""
        self._kept.save(self._key(job), plain_result(result))

    def tidy(self) -> None:
        """Delete files of other runs in this folder."""
        self._kept.tidy()

    def _key(self, job: Job) -> str:
        """Empty for a job that is always run: the example's, a document's, and all jobs with plug-ins."""
        if job.keep_example or job.configuration.route:
            return ""
        return self._kept.key(
            job.entry.name,
            world_facts(compiled(job.entry)),
            configuration_key(job.configuration),
            list(job.seeds),
            None if job.healthy is None else _sums(job.healthy),
        )


def _sums(quality: SliceQuality) -> dict[str, list[float]]:
    return {name: np.asarray(values).tolist() for name, values in asdict(quality).items()}


def plain_result(result: JobResult) -> dict[str, Any]:
    """``result`` in its stored form."""
    return {
        "episodes": [asdict(one) for one in result.episodes],
        "until_fault_end": [asdict(one) for one in result.until_fault_end],
        "healthy": _sums(result.healthy),
    }


def read_result(plain: Any, job: Job) -> JobResult | None:
    """The result of ``job`` stored as ``plain``; None if it must be run."""
    with suppress(*MALFORMED):
        return None if plain is None else _result(plain, job)
    return None


def _result(plain: dict[str, Any], job: Job) -> JobResult:
    sums = {name: np.array(values, dtype=np.float64) for name, values in plain["healthy"].items()}
    if {values.shape for values in sums.values()} != {(len(compiled(job.entry).layout.slices),)}:
        raise ValueError("expected one number per slice")
    return JobResult(
        scenario=job.entry.name,
        configuration=job.configuration.name,
        episodes=_EPISODES.validate_python(plain["episodes"]),
        until_fault_end=_EPISODES.validate_python(plain["until_fault_end"]),
        healthy=SliceQuality(**sums),
        example=None,
    )
