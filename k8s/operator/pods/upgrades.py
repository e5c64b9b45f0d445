"""Assigns each server to one kernel while a planned upgrade in place is in progress. Pure.

Kernel and candidate share the pods of one Deployment; their backends select by different values of one label.
A server with the announced fingerprint belongs to the candidate, even if its label is not updated yet. A
server of unknown build is assigned by its label, which was set when the build was known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from k8s.operator.pods.endpoints import FoundEndpoints, own_labels
from k8s.operator.pods.pod_facts import IN_ROTATION
from k8s.operator.pods.slices import BackendEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """One planned upgrade in place. fingerprint: what servers state once they run ``candidate``'s build."""

    kernel: str
    candidate: str
    fingerprint: str


#: Kernel -> its servers.
Servers = dict[str, tuple[BackendEndpoint, ...]]


def assign_kernels(
    found: Mapping[str, FoundEndpoints], announced: Sequence[Announced], stated: Mapping[str, str]
) -> Servers:
    """Servers per kernel, each server under one kernel only. stated: pod -> fingerprint in its answers."""
    servers = {kernel: one.endpoints for kernel, one in found.items()}
    for one in announced:
        if one.kernel in found and one.candidate in found:
            value = found[one.candidate].selector.get(IN_ROTATION, "")
            old, new = servers[one.kernel], servers[one.candidate]
            servers[one.kernel], servers[one.candidate] = _handed_over(one, old, new, value, stated)
    return _once(servers)


def label_problem(found: Mapping[str, FoundEndpoints], one: Announced) -> str:
    """Why the label cannot distinguish the two kernels of upgrade ``one``, "" if it can."""
    old, new = (found[name].selector for name in (one.kernel, one.candidate))
    values = old.get(IN_ROTATION), new.get(IN_ROTATION)
    if own_labels(old) == own_labels(new) and None not in values and values[0] != values[1]:
        return ""
    return (
        f"kernel {one.candidate}: expected the selector of kernel {one.kernel}'s backend with another "
        f"{IN_ROTATION}, as the fingerprint of an upgrade in place is announced; got {new or 'none'} and "
        f"{old or 'none'}; write the same labels into it with {IN_ROTATION}: candidate"
    )


def _handed_over(
    one: Announced,
    old: Sequence[BackendEndpoint],
    new: Sequence[BackendEndpoint],
    value: str,
    stated: Mapping[str, str],
) -> tuple[tuple[BackendEndpoint, ...], tuple[BackendEndpoint, ...]]:
    """Servers of the kernel, and those of its candidate. value: label value that the candidate's backend
    selects.
    """
    theirs = {each.key: each for each in new}
    kept = []
    for each in old:
        build = each.fingerprint or stated.get(each.pod, "")
        if build == one.fingerprint or (not build and each.label == value):
            moved = replace(each, in_rotation=False, leaves=one.kernel if each.in_rotation else "")
            known = theirs.get(each.key, moved)
            theirs[each.key] = replace(known, fingerprint=build, label_in=value, leaves=moved.leaves)
        else:
            theirs.pop(each.key, None)
            kept.append(each)
    return tuple(kept), tuple(theirs.values())


def _once(servers: Servers) -> Servers:
    """Each server under one kernel: the first that has it in rotation, else the first that lists it."""
    owner: dict[str, str] = {}
    for rotating in (True, False):
        for kernel, found in servers.items():
            for each in found:
                if each.in_rotation is rotating:
                    owner.setdefault(each.key, kernel)
    return {
        kernel: tuple(each for each in found if owner[each.key] == kernel)
        for kernel, found in servers.items()
    }
