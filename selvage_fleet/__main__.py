"""The commands ``selvage`` and ``selvage-fleet``, and ``python -m selvage_fleet``."""

from __future__ import annotations

from scripts.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
