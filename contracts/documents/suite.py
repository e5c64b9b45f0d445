"""``Suite``: the scenarios of one experiment, faults and controls, run paired over seeds.

A scenario of a suite is a file of its own (``uri``) or the suite's ``base`` scenario with its own
faults and changes, so that a whole experiment fits one page.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    Count,
    Document,
    Name,
    Positive,
    PositiveCount,
    Ratio,
    Strict,
    Text,
    Uri,
)
from contracts.documents.scenario import Change, ScheduledFault


class SuiteScenario(Strict):
    """One scenario of a suite; a ``control`` has ordinary changes but no fault."""

    name: Name
    """Name of the scenario, unique in this suite."""
    description: Annotated[str, Field(max_length=4000)] = ""
    """What the scenario shows, as text for people."""
    uri: Uri | None = None
    """Scenario file of this entry; absent: the base with the overrides below."""
    base: Uri | None = None
    """Scenario that this entry starts from; absent: the suite's base."""
    control: bool = False
    """True: the scenario has no fault."""
    near_miss: bool = False
    """True: the fault keeps the contract, so every switch away from it is false."""
    faults: Annotated[tuple[ScheduledFault, ...], Field(max_length=64)] = ()
    """Faults added to those of the base."""
    changes: Annotated[tuple[Change, ...], Field(max_length=64)] = ()
    """Changes added to those of the base."""
    rate_factor: Positive = 1.0
    """Factor on the base's offered rate."""
    rate_rps: Positive | None = None
    """Offered rate in place of the base's, requests per second; absent: the base's."""
    scrape_loss_ratio: Ratio | None = None
    """Share of lost scrapes in place of the base's, 0..1; absent: the base's."""


#: ``policy[:key=value,...][@alarm confidence]``, e.g. ``hysteresis:dwell_s=120@0.99``; a value is a number
#: or, for a policy from a file, its path or package URI.
ConfigurationText = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9-]*(:[a-z_0-9]+=[\w.:/+-]+(,[a-z_0-9]+=[\w.:/+-]+)*)?(@0\.[0-9]+)?$",
        max_length=400,
    ),
]


class FewerSeeds(Strict):
    """Configurations that run on the first few seeds only: they take long and are no competitors."""

    policies: Annotated[tuple[ConfigurationText, ...], Field(min_length=1, max_length=64)]
    """Names of the configurations; that of a RoutePolicy is ``route-policy-NAME``."""
    seeds: PositiveCount
    """Number of seeds that these configurations run on."""


class SuiteSpec(Strict):
    """An experiment."""

    description: Text
    """What the experiment compares, as text for people."""
    base: Uri | None = None
    """Scenario that entries without a ``uri`` start from; absent: each entry names its own."""
    scenarios: Annotated[tuple[SuiteScenario, ...], Field(min_length=1, max_length=128)]
    """Scenarios of the experiment."""
    policies: Annotated[tuple[ConfigurationText, ...], Field(max_length=64)] = ()
    """Policy configurations that are compared."""
    sweep: Annotated[tuple[ConfigurationText, ...], Field(max_length=64)] = ()
    """Further settings of the policies, for the trade-off between false switches and recovery."""
    sweep_scenarios: Annotated[tuple[Name, ...], Field(max_length=128)] = ()
    """Scenarios on which the sweep runs; empty: all."""
    route_policy: Uri | None = None
    """A RoutePolicy that runs with its own settings as one more configuration; absent: none."""
    seed: Count = 0
    """First seed."""
    seeds: PositiveCount = 20
    """Number of seeds that each configuration runs on."""
    fewer_seeds: FewerSeeds | None = None
    """Configurations that run on fewer seeds; absent: none."""


class Suite(Document):
    """A suite of scenarios."""

    kind: Literal["Suite"] = "Suite"
    spec: SuiteSpec
