"""``Suite``: the scenarios of one experiment, faults and controls, run paired over seeds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import Count, Document, Name, PositiveCount, Strict, Text, Uri


class SuiteScenario(Strict):
    """One scenario; a ``control`` has ordinary change but no fault."""

    name: Name
    uri: Uri
    control: bool = False


class SuiteSpec(Strict):
    """An experiment."""

    description: Text
    scenarios: Annotated[tuple[SuiteScenario, ...], Field(min_length=1, max_length=128)]
    policies: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    seed: Count = 0
    seeds: PositiveCount = 20


class Suite(Document):
    """A suite of scenarios."""

    kind: Literal["Suite"] = "Suite"
    spec: SuiteSpec
