"""URIs of the documents that ship with the project; they are the defaults of commands."""

from __future__ import annotations

from contracts.loading.uris import PACKAGE_PREFIX

LIBRARY = f"{PACKAGE_PREFIX}contracts/library/"
SERVING_POOL = f"{LIBRARY}serving-pool.yaml"
SERVING_GENERATION = f"{LIBRARY}serving-generation.yaml"
SHIPPED_META = f"{LIBRARY}meta-contract.yaml"
SHIPPED_ARTEFACT = f"{LIBRARY}policies/routing.yaml"
#: The same weights for fleets of as many slices as the pools of live drills have, certified on such a fleet.
LIVE_ARTEFACT = f"{LIBRARY}live-fleet/policies/routing.yaml"
SHIPPED_RECIPE = f"{LIBRARY}recipes/routing.yaml"
SHIPPED_SUITE = f"{LIBRARY}suites/e5.yaml"
#: Worlds whose loads and capacities differ from their declarations.
STRESS_SUITE = f"{LIBRARY}suites/e5-stress.yaml"
#: The world that the scenarios of E5 are built on.
E5_BASE = f"{LIBRARY}suites/e5-base.yaml"
