"""Benchmark of sample efficiency: ``selvage bench samples``.

What the large batches and few epochs of ``selvage bench train`` cost: the same number of environment steps
under the usual batch and epochs of Stable-Baselines3 (``small``) and under the timed ones (``large``), from
equal weights. Rewards are those per tick of the policy as it drives, on episodes that neither has seen, means
over seeds of training; CPU seconds are those of one training. Takes about ten minutes; every training that
has ended is told on stderr, and an interruption leaves these lines.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from scripts.studies.training import native_ppo

#: Seeds of training, and rollouts of each.
SEEDS, ROLLOUTS = (0, 1, 2), 16


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    with tempfile.TemporaryDirectory() as folder:
        config = native_ppo.environment(Path(folder))
        return native_ppo.study(config, SEEDS, ROLLOUTS, lambda line: print(line, file=sys.stderr))
