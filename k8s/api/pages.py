"""Listings page by page: what is held at once is one page as it came, and of the others what is kept of them.

A listing is whole or an error. A server forgets after some minutes where a listing stood (410 Gone, "the
provided continue parameter is too old"): it begins anew then, and at last asks for everything at once, as
client-go does, because a namespace that is only half listed would have lost its servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from kubernetes import client

from contracts.loading.untrusted import MALFORMED, json_of
from k8s.operator.objects import ClusterError, Manifest

#: Objects of one page, as kubectl asks for.
PAGE_OBJECTS = 500
#: Pages of one listing: 200,000 objects, more than a cluster may hold pods.
_MOST_PAGES = 400
#: Objects of a page, for each try of one listing; None: all at once.
_TRIES = (PAGE_OBJECTS, PAGE_OBJECTS, None)

_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[_Kept]):
    """All objects of one kind. version: resourceVersion that a watch goes on from."""

    objects: list[_Kept]
    version: str


def listed(ask: Callable[..., Any], kept: Callable[[Manifest], _Kept]) -> Listed[_Kept]:
    """Everything that ``ask`` lists. ask: one call of the client with the query that it is given; kept: what
    stays of an object.

    Raises what the client raises, and ClusterError for an answer that is no listing.
    """
    for limit in _TRIES:
        try:
            return _whole(ask, kept, limit)
        except client.ApiException as error:
            if error.status != HTTPStatus.GONE or limit is None:
                raise
    raise AssertionError("the last try returns or raises")


def _whole(ask: Callable[..., Any], kept: Callable[[Manifest], _Kept], limit: int | None) -> Listed[_Kept]:
    """One try; ApiException 410 where the server no longer knows where it stood."""
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
