"""An evaluation as JUnit XML: one test case for each clause on each slice, as CI systems show them.

A broken clause is a *failure*, a clause that keeps the evaluation inconclusive an *error*, and one that may
stay open (waived, or soft and not measured) is *skipped*. A slice without a sample is a separate error.
"""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from contracts.assess.evaluate import ClauseVerdict, Evaluation
from contracts.assess.gate import GateOutcome, open_promises, unseen_slices
from contracts.assess.verdicts import ContractVerdict
from contracts.errors import DocumentError

#: Name of an element -> the attribute of the suite that counts it.
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def junit_xml(evaluation: Evaluation) -> str:
    """The evaluation as one ``testsuite``; equal evaluations give equal text."""
    suite = Xml.Element("testsuite", name=evaluation.contract)
    still_open = {(each.clause_id, each.slice) for each in open_promises(evaluation.clauses)}
    for clause in evaluation.clauses:
        case = _case(suite, evaluation.contract, f"{clause.clause_id} on {clause.slice}")
        _fill(case, clause, (clause.clause_id, clause.slice) in still_open)
    for name in unseen_slices(evaluation.clauses):
        case = _case(suite, evaluation.contract, f"slice {name}")
        Xml.SubElement(case, "error", type=GateOutcome.INCONCLUSIVE, message="no sample of this slice")
    return _text(suite, evaluation.outcome)


def junit_error(contract: str, error: DocumentError) -> str:
    """The file's content if nothing could be judged."""
    suite = Xml.Element("testsuite", name=contract)
    case = _case(suite, contract, "inputs")
    Xml.SubElement(case, "error", type=GateOutcome.ERROR, message=_printable(str(error)))
    return _text(suite, GateOutcome.ERROR)


def _case(suite: Xml.Element, contract: str, name: str) -> Xml.Element:
    return Xml.SubElement(suite, "testcase", classname=contract, name=name)


def _fill(case: Xml.Element, clause: ClauseVerdict, is_open: bool) -> None:
    if clause.verdict is ContractVerdict.FAIL:
        Xml.SubElement(case, "failure", type=GateOutcome.FAILED, message=_numbers(clause))
    elif is_open:
        Xml.SubElement(case, "error", type=GateOutcome.INCONCLUSIVE, message=_numbers(clause))
    elif clause.verdict is not ContractVerdict.PASS:
        told = f"waived: {clause.waived}" if clause.waived else clause.reason
        Xml.SubElement(case, "skipped", message=told)


def _numbers(clause: ClauseVerdict) -> str:
    """The reason with the judged number, its limits and their threshold."""
    if clause.judged is None:
        return clause.reason
    found = clause.judged
    limits = f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g})"
    return f"{clause.reason}: {limits} against {clause.limit:.4g}"


def _printable(text: str) -> str:
    """``text`` without characters that XML forbids: bad input may be quoted in it."""
    return "".join(each if each.isprintable() else " " for each in text)


def _text(suite: Xml.Element, outcome: GateOutcome) -> str:
    """The document, with the counts that readers expect."""
    suite.set("tests", str(len(suite)))
    for element, attribute in _COUNTED.items():
        suite.set(attribute, str(len(suite.findall(f"testcase/{element}"))))
    properties = Xml.Element("properties")
    Xml.SubElement(properties, "property", name="outcome", value=outcome)
    suite.insert(0, properties)
    Xml.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(suite, encoding="unicode")
