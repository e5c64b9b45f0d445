"""The commands ``selvage`` and ``selvage-fleet``, and ``python -m selvage_fleet``."""

from __future__ import annotations

import signal
import sys

# Loading takes a moment, and nothing has begun: Ctrl-C ends the process as the system does, with no
# traceback of imports, until ``scripts.guard`` takes the signals over. A worker runs its parent's main module
# first, and its parent says when it ends.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler and "multiprocessing" not in sys.modules:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from scripts.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
