"""True capacities and the model's, for ``docs/simulator.md`` and ``docs/capacity.md``:
``python -m scripts.capacity_page docs``, a quarter of a minute of processor time.

Seeds decide the figures, no clock does: the same sources write the same tables.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.bench import capacity
from scripts.output import fill, table

SUITES = "package:contracts/library/suites"
BASE = "e5-base"
OTHERS = ("e5-stress-half-mix", "e5-stress-double-mix", "e5-stress-reproduction")


def base_table(figures: dict[str, object]) -> list[str]:
    """Rows of kernels: what one replica carries, what the model says, and their ratio."""
    head = ("kernel", "true, requests/s", "model, requests/s", "model / true")
    rows = []
    for kernel in kernels(figures):
        true_rps, model_rps = (_number(figures, kernel, name) for name in ("true_rps", "model_rps"))
        rows.append([kernel, f"{true_rps:.2f}", f"{model_rps:.2f}", _ratio(figures, kernel)])
    return table(head, rows, numbers=True)


def ratio_table(figures: dict[str, dict[str, object]]) -> list[str]:
    """Rows of bases, by name: the model's capacity over the true one of each kernel."""
    columns = kernels(next(iter(figures.values())))
    rows = [[f"`{base}`", *(_ratio(found, kernel) for kernel in columns)] for base, found in figures.items()]
    return table(("base", *columns), rows, numbers=True)


def kernels(figures: dict[str, object]) -> list[str]:
    """Names in the order of the pool."""
    return [key.removesuffix("/ratio") for key in figures if key.endswith("/ratio")]


def _ratio(figures: dict[str, object], kernel: str) -> str:
    true_rps = _number(figures, kernel, "true_rps")
    return f"{_number(figures, kernel, 'model_rps') / true_rps:.2f}" if true_rps > 0.0 else "–"


def _number(figures: dict[str, object], kernel: str, name: str) -> float:
    return float(str(figures[f"{kernel}/{name}"]))


def main(folder: Path) -> None:
    """Fill the tables of both pages in ``folder``."""
    found = {base: capacity.run(f"{SUITES}/{base}.yaml") for base in (BASE, *OTHERS)}
    fill(folder / "simulator.md", {"capacity": base_table(found[BASE])})
    fill(folder / "capacity.md", {"capacity-ratios": ratio_table(found)})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
