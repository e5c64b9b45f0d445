"""Listings page by page: memory holds one full page at a time, and of the other pages only what is kept.

A listing is complete or an error: half a listing would look like lost servers. A continue token expires after
some minutes (410 Gone, "the provided continue parameter is too old"). Then the listing starts again, and the
last try asks for everything at once, as client-go does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from kubernetes import client

from contracts.loading.untrusted import MALFORMED, json_of
from k8s.operator.objects import ClusterError, Manifest

#: Objects per page, the same as kubectl's.
PAGE_OBJECTS = 500
#: Most pages of one listing: 200,000 objects, more than the pods of any supported cluster.
_MOST_PAGES = 400
#: Objects per page for each try of one listing; None: all at once.
_TRIES = (PAGE_OBJECTS, PAGE_OBJECTS, None)

_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[_Kept]):
    """All objects of one kind. version: resourceVersion from which to watch."""

    objects: list[_Kept]
    version: str


def listed(ask: Callable[..., Any], kept: Callable[[Manifest], _Kept]) -> Listed[_Kept]:
    """Everything that ``ask`` lists. ask: calls the client with the given query; kept: reduces an object.

    Raises the client's errors, and ClusterError for an answer that is not a listing.
    """
    for limit in _TRIES:
        try:
            return _whole(ask, kept, limit)
        except client.ApiException as error:
            if error.status != HTTPStatus.GONE or limit is None:
                raise
    raise AssertionError("the last try returns or raises")


def _whole(ask: Callable[..., Any], kept: Callable[[Manifest], _Kept], limit: int | None) -> Listed[_Kept]:
    """One try; ApiException 410 if the continue token has expired."""
    found: list[_Kept] = []
    version = token = ""
    for _ in range(_MOST_PAGES):
        query: dict[str, Any] = {} if limit is None else {"limit": limit}
        answer = ask(**query, **({"_continue": token} if token else {}), _preload_content=False)
        try:
            page = json_of(answer.data)
            found += [kept(one) for one in page["items"]]
            version = version or str(page["metadata"]["resourceVersion"])
            before, token = token, str(page["metadata"].get("continue") or "")
        except MALFORMED as error:
            message = (
                f"the API server's answer is no listing ({type(error).__name__}); see what stands before it"
            )
            raise ClusterError(message) from error
        if not token:
            return Listed(objects=found, version=version)
        if token == before:
            break
    raise ClusterError(f"the API server's listing has no end after {len(found)} objects")
