"""Which registries may be asked, and whom each may send us on to: origins that somebody named, no others.

A registry answers with the address of its token service, and with redirects to its storage. Whoever writes a
document must not make us call what we alone can reach, and no registry may be told another one's secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from live.origins import allowed_origin, origin_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOrigins:
    """One registry that may be asked. origin: ``https://HOST:PORT``; beside: origins of its token service and
    of its storage.
    """

    origin: str
    beside: frozenset[str] = frozenset()

    @property
    def origins(self) -> frozenset[str]:
        """Everything that is called for it."""
        return self.beside | {self.origin}


def registry_of(text: str) -> RegistryOrigins:
    """What ``ORIGIN[,ORIGIN...]`` allows: the registry first; ValueError for what is no origin."""
    first, *others = (allowed_origin(one) for one in text.split(","))
    return RegistryOrigins(origin=first, beside=frozenset(others))


def allowed(host: str, registries: Iterable[RegistryOrigins]) -> RegistryOrigins | None:
    """The registry that a URI calls ``host`` (``HOST`` or ``HOST:PORT``); None where it may not be asked."""
    for one in registries:
        scheme = one.origin.partition("://")[0]
        try:
            if origin_of(f"{scheme}://{host}") == one.origin:
                return one
        except ValueError:
            return None
    return None
