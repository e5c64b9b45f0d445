"""Loading documents and judging samples against a contract; re-exported by ``selvage_fleet``."""

from __future__ import annotations

from pathlib import Path

from contracts.assess.evaluate import Evaluation, evaluate
from contracts.assess.observations import ALL_SPLITS
from contracts.documents import Document, KernelContract
from contracts.documents.profile import HEALTHY
from contracts.errors import SelvageError
from contracts.loading.loader import load_document
from contracts.loading.uris import resolve_uri
from scripts.cli.judging.inputs import load_contract, load_judged

__all__ = ["Document", "Evaluation", "SelvageError", "judge", "load"]


def load(uri: str | Path) -> Document:
    """The document at ``uri``, a path or ``package:FOLDER/...``, of the kind it says it is.

    Raises SelvageError (DocumentError) that lists every fault with its line.
    """
    return load_document(resolve_uri(str(uri), ""))


def judge(
    contract: str | Path | KernelContract,
    samples: str | Path,
    *,
    condition: str = HEALTHY,
    split: str = ALL_SPLITS,
) -> Evaluation:
    """Evaluate every clause of ``contract`` on every slice of ``samples``, as ``selvage contract evaluate``
    does.

    contract: a document, or its path or URI; samples: a profile (.yaml), measured samples (.npz) or a log of
    observations (.jsonl), as path or URI; condition, split: which of the measured conditions and splits of
    prompts to use. Raises SelvageError (DocumentError) for bad input.
    """
    document = contract if isinstance(contract, KernelContract) else load_contract(str(contract))
    return evaluate(document, load_judged(str(samples), condition, split).observations)
