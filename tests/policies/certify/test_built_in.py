"""Certificates of built-in policies: what they speak of, and the one that ships."""

from __future__ import annotations

from contracts.documents import MetaContract
from contracts.loading.loader import load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from policies.artefacts import builtin_sha256
from policies.route import refuse_uncertified_baseline


def test_a_built_in_policys_certificate_speaks_of_every_setting() -> None:
    """Defaults count as settings, written out or not; any other value is another subject."""
    assert builtin_sha256("hysteresis") == builtin_sha256("hysteresis:dwell_s=120")
    assert builtin_sha256("hysteresis") != builtin_sha256("hysteresis:dwell_s=121")
    assert builtin_sha256("hysteresis") != builtin_sha256("threshold")


def test_the_shipped_baseline_is_certified_as_it_is_set_today() -> None:
    """Its certificate ships, keeps every clause of the shipped meta-contract and is of today's settings."""
    place = resolve_uri(SHIPPED_META, "tests")
    refuse_uncertified_baseline(load_as(MetaContract, place), place)
