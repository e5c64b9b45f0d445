"""Policies by name: settings, registered detectors, and what is refused."""

from __future__ import annotations

import pytest

from contracts.plugins import number
from controller.detect.registry import DETECTORS, DetectorKind
from controller.detect.window import WindowDetector
from policies.kinds import POLICIES
from policies.registry import configuration_facts, make_configuration, make_policy, register_policy
from policies.synthetic_fleet import synthetic_fleet

FLEET = synthetic_fleet(3, 2, 6)
PATIENT = DetectorKind(
    make=lambda fleet, values: WindowDetector(carry_windows=int(values["windows"])),
    parameters={"windows": number(7.0, "made up")},
    description="made up",
)


def test_policy_uses_the_detector_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector's settings are given with the policy's, and both are part of its facts."""
    monkeypatch.setitem(DETECTORS, "patient", PATIENT)
    spec = "hysteresis:detector=patient,dwell_s=60,windows=3"
    made = make_configuration(spec, FLEET)
    assert made.detector == WindowDetector(carry_windows=3)
    assert made.policy.policy_id == spec
    settings = configuration_facts(spec)["settings"]
    assert isinstance(settings, dict)
    assert (settings["detector"], settings["windows"], settings["dwell_s"]) == ("patient", 3.0, 60.0)


def test_a_policy_without_a_named_detector_has_no_setting_of_that_name() -> None:
    """Facts of a policy without a named detector are unchanged by registered detectors."""
    settings = configuration_facts("hysteresis")["settings"]
    assert isinstance(settings, dict)
    assert "detector" not in settings


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nobodys", "unknown policy 'nobodys'; known: breaker, burn-rate, .*threshold"),
        ("hysteresis:detector=nobodys", "unknown detector 'nobodys'; known: none"),
        ("hysteresis:windows=3", "unknown parameter 'windows'"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(spec: str, message: str) -> None:
    """An unregistered policy, detector or setting is a ValueError that lists the known ones."""
    with pytest.raises(ValueError, match=message):
        make_policy(spec, FLEET)


def test_a_registered_name_is_not_replaced() -> None:
    """A policy cannot be registered under a name that is taken."""
    with pytest.raises(ValueError, match="'hysteresis' is registered already"):
        register_policy("hysteresis", POLICIES["threshold"])
