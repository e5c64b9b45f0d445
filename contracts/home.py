"""The house itself: its layers, the folder that holds them, the package that they are installed as.

Standard library only: the build and the doctor ask where nothing is installed yet.
"""

from __future__ import annotations

from pathlib import Path

#: Folder that holds the layers: the checkout, or the installed package.
HOME = Path(__file__).resolve().parents[1]
#: Top-level folders, from the vocabulary up to what is started.
LAYERS = ("contracts", "controller", "faults", "policies", "simulator", "live", "k8s", "scripts")
#: The one package that an installation brings, and the folder of its façade.
PACKAGE = "selvage_fleet"
