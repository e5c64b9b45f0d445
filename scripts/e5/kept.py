"""Finished jobs of a run, kept in its folder by the hash of everything that decides their results.

A rerun of the same command goes on where it was stopped. A kept job is taken only where sources, versions,
scenario with all its inputs, policy with its files, seeds and quality baseline are the same; anything else,
or a file that cannot be read, is a job to be run.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from contracts.errors import DocumentError
from contracts.loading.files import canonical_sha256
from contracts.regular_files import TEXT_BYTES, read_regular
from contracts.scoring.measures import EpisodeMeasures
from contracts.scoring.quality import SliceQuality
from policies.registry import configuration_sha256
from scripts.e5.jobs import Job, JobResult, compiled
from scripts.output import ready_folder, write_whole
from scripts.provenance import machine_facts, sources_sha256

_FORMAT = 1
_GROUPS = ("policies", "detectors", "metrics", "faults")
_EPISODES = TypeAdapter(tuple[EpisodeMeasures, ...])


class KeptJobs:
    """The folder of kept jobs of one run; what no job of this run asks for is dropped by ``tidy``."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "jobs"
        versions = {name: text for name, text in machine_facts().items() if name.startswith("version_")}
        self._code = [_FORMAT, sources_sha256(), versions]
        self._asked: set[str] = set()
        # The code of plug-ins is in no hash of ours.
        self._is_ours = not any(entry_points(group=f"selvage_fleet.{name}") for name in _GROUPS)

    def load(self, job: Job) -> JobResult | None:
        """What ``job`` left; None where it must be run."""
        file = self._place(job)
        if file is None or not file.is_file():
            return None
        with suppress(DocumentError, ValueError, KeyError, TypeError):
            return _read(json.loads(read_regular(file, TEXT_BYTES)), job)
        return None

    def save(self, job: Job, result: JobResult) -> None:
        """Keep ``result`` of ``job``."""
        file = self._place(job)
        if file is not None:
            ready_folder(self._folder)
            # No ``write_json``: a number that is not known comes back as that.
            write_whole(file, json.dumps(_plain(result), sort_keys=True))

    def tidy(self) -> None:
        """Drop what other runs left in this folder."""
        for file in self._folder.glob("*.json"):
            if file.stem not in self._asked:
                file.unlink()

    def _place(self, job: Job) -> Path | None:
        """None for a job that is always run: the example's, those of a document, all beside plug-ins."""
        if job.keep_example or job.configuration.route or not self._is_ours:
            return None
        world, configuration = compiled(job.entry), job.configuration
        key = canonical_sha256(
            [
                self._code,
                [job.entry.name, world.sha256, world.pool_sha256, world.trace_sha256, world.contract.sha256],
                list(world.profile_sha256),
                [
                    configuration.name,
                    configuration.alarm_confidence,
                    configuration_sha256(configuration.spec),
                ],
                list(job.seeds),
                None if job.healthy is None else _sums(job.healthy),
            ]
        )
        self._asked.add(key)
        return self._folder / f"{key}.json"


def _sums(quality: SliceQuality) -> dict[str, list[float]]:
    return {name: np.asarray(values).tolist() for name, values in asdict(quality).items()}


def _plain(result: JobResult) -> dict[str, Any]:
    return {
        "episodes": [asdict(one) for one in result.episodes],
        "until_fault_end": [asdict(one) for one in result.until_fault_end],
        "healthy": _sums(result.healthy),
    }


def _read(plain: dict[str, Any], job: Job) -> JobResult:
    sums = {name: np.array(values, dtype=np.float64) for name, values in plain["healthy"].items()}
    return JobResult(
        scenario=job.entry.name,
        configuration=job.configuration.name,
        episodes=_EPISODES.validate_python(plain["episodes"]),
        until_fault_end=_EPISODES.validate_python(plain["until_fault_end"]),
        healthy=SliceQuality(**sums),
        example=None,
    )
