"""Hypothesis strategies that draw documents from the models themselves: every field, every limit."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from contracts.documents import Document, KernelContract, Label
from contracts.documents.contract import Clause, ContractSpec, Escalation, Slice
from contracts.documents.envelope import INT64_MAX, Metadata
from contracts.metrics import METRICS, PASSIVE_COLUMNS, JudgedBy
from contracts.rules.contract import threshold_limits

#: Text that YAML readers like to misread, beside arbitrary text.
AWKWARD = (
    "on", "N", "null", "~", "1e-3", "010", "0x1f", "2026-01-01", "1:30", ".inf", "- a", "a: b", "#x",
    "'", '"', " lead", "trail ", "two\nlines", "tab\there", "é\u2028\x85", "{}", "[", "*a", "&a", "!t",
    "%d", "-",
)  # fmt: skip


def documents(kind: type[Document]) -> st.SearchStrategy[Document]:
    """Documents of ``kind`` that the model accepts; rules between fields are ignored."""
    return _model(kind).map(lambda found: found)


def texts(least: int = 0, most: int = 40) -> st.SearchStrategy[str]:
    """Text of a length, awkward words preferred."""
    free = st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=min(most, 40))
    return st.sampled_from([word for word in AWKWARD if least <= len(word) <= most]) | free


def names() -> st.SearchStrategy[str]:
    """Names of slices, kernels and clauses."""
    return st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?", fullmatch=True)


def _model(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    if model is Metadata:
        return _metadata()
    drawn = {name: _field(field) for name, field in model.model_fields.items()}
    return st.fixed_dictionaries(drawn).map(lambda values: model(**values))


def _metadata() -> st.SearchStrategy[Metadata]:
    labels = st.dictionaries(texts(1, 20), texts(), max_size=3).map(
        lambda found: tuple(Label(key=key, value=found[key]) for key in sorted(found))
    )
    name = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?", fullmatch=True)
    return st.builds(Metadata, name=name, namespace=st.none() | name, labels=labels, annotations=labels)


def _field(field: FieldInfo) -> st.SearchStrategy[Any]:
    return _type(field.annotation, field.metadata)


def _type(annotation: Any, limits: list[Any]) -> st.SearchStrategy[Any]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _type(annotation.__origin__, [*_flat(annotation.__metadata__), *limits])
    if origin in (Union, UnionType):
        inner = next(part for part in parts if part is not NoneType)
        return st.none() | _type(inner, limits)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is tuple:
        least = _limit(limits, "min_length", 0)
        return st.lists(_type(parts[0], []), min_size=least, max_size=max(least, 2)).map(tuple)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation)
    return _scalar(annotation, limits)


def _flat(metadata: tuple[Any, ...]) -> list[Any]:
    """Limits of an annotation; those of a nested ``Field`` are one level down."""
    found: list[Any] = []
    for item in metadata:
        found += item.metadata if isinstance(item, FieldInfo) else [item]
    return found


def _limit(limits: list[Any], name: str, otherwise: Any) -> Any:
    found = [getattr(item, name) for item in limits if getattr(item, name, None) is not None]
    return found[-1] if found else otherwise


def _scalar(kind: Any, limits: list[Any]) -> st.SearchStrategy[Any]:
    if kind is bool:
        return st.booleans()
    if kind is int:
        low, high = _limit(limits, "ge", -INT64_MAX), _limit(limits, "le", INT64_MAX)
        return st.integers(low, high)
    if kind is float:
        low, high = (
            _limit(limits, "ge", _limit(limits, "gt", None)),
            _limit(limits, "le", _limit(limits, "lt", None)),
        )
        return st.floats(
            low,
            high,
            allow_nan=False,
            allow_infinity=False,
            exclude_min=_limit(limits, "gt", None) is not None,
            exclude_max=_limit(limits, "lt", None) is not None,
        )
    pattern = _limit(limits, "pattern", None)
    if pattern is not None:
        most = _limit(limits, "max_length", 100)
        bounded = pattern.replace("]*", "]{0,9}")
        return st.from_regex(bounded, fullmatch=True).filter(lambda t: len(t) <= most and t.isascii())
    return texts(_limit(limits, "min_length", 0), _limit(limits, "max_length", 100))


@st.composite
def contracts(draw: st.DrawFn) -> KernelContract:
    """Contracts that keep every rule."""
    slices = draw(st.lists(names(), min_size=1, max_size=4, unique=True))
    default = draw(st.sampled_from(slices))
    count = draw(st.integers(1, 4))
    spec = ContractSpec(
        description=draw(texts(1)),
        slices=tuple(Slice(name=name, default=name == default) for name in slices),
        clauses=tuple(draw(_clause(f"c{index}", slices)) for index in range(count)),
        escalation=Escalation(
            guard_threshold=draw(st.floats(0.1, 1.0)),
            fallback_threshold=draw(st.floats(1.5, 9.0)),
            when_uncertified=draw(st.sampled_from(("shed", "serve_known_good"))),
        ),
    )
    return KernelContract(metadata=draw(_metadata()), spec=spec)


@st.composite
def _clause(draw: st.DrawFn, name: str, slices: list[str]) -> Clause:
    spec = METRICS[draw(st.sampled_from(sorted(METRICS)))]
    low, high = threshold_limits(spec)
    passive = bool(set(spec.columns) & set(PASSIVE_COLUMNS))  # what users answer informs, and no more
    budget = draw(st.sampled_from((0.005,) if passive else (0.0, 0.005)))
    needs_null_rate = spec.judgement is JudgedBy.PER_OBSERVATION and budget == 0.0
    return Clause(
        id=name,
        family=draw(st.sampled_from(("N", "S", "R", "O"))),
        metric=spec.name,
        estimator=draw(st.sampled_from(spec.estimators)),
        threshold=draw(st.floats(low, min(high, low + 0.9))),
        slices=draw(st.none() | st.lists(st.sampled_from(slices), min_size=1, unique=True).map(tuple)),
        budget=budget,
        null_rate=draw(st.floats(0.0, 1.0)) if needs_null_rate else None,
        level=draw(st.sampled_from(("L1",) if passive else ("L1", "L2", "L3"))),
        remediation=draw(texts(1)),
        reason=draw(texts(1)),
    )
