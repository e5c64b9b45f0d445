"""What is kept of a judged drill wherever it ran: verdict, checks and evidence, as JSON holds them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from contracts.loading.files import plain
from faults.drill.outcome import DrillOutcome


def outcome_told(outcome: DrillOutcome) -> dict[str, Any]:
    """Verdict and reason, checks, faults with their proofs, and when it was undone, healed and recovered.

    Times are seconds; null for what did not come to pass.
    """
    run = outcome.run
    found: dict[str, Any] = plain(
        {
            "verdict": outcome.verdict.value,
            "reason": outcome.reason,
            "checks": [asdict(check) for check in outcome.checks],
            "faults": [asdict(fault) for fault in run.faults],
            "undone_at_s": run.undone_at_s,
            "mended": [asdict(one) for one in run.mended],
            "recovered_s": outcome.recovered_s,
        }
    )
    return found
