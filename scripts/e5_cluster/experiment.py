"""``selvage e5 --target kubernetes``: FaultDrills under every policy on one pool of a cluster."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import typer
from kubernetes import client

from k8s.api.connection import cluster_client
from k8s.api.experiments import ApiExperiment
from k8s.operator.objects import ClusterError, Manifest
from k8s.process.drills import LEASE as RUNNER_LEASE
from k8s.process.election import LEASE_S, Leadership
from scripts.e5.run.experiment import write_results
from scripts.e5_cluster.borrowed import BorrowedPolicy
from scripts.e5_cluster.drills import DrillCourse, result_of
from scripts.e5_cluster.plan import COMMAND, ClusterOptions, ClusterSuite, plan_cluster
from scripts.e5_cluster.pool import ExperimentPool, in_alarm
from scripts.e5_cluster.ports import ExperimentCluster, ExperimentError, Waiting
from scripts.e5_drills.plan import DrillEpisode, option_refusal
from scripts.e5_drills.results import EpisodeResult, KeptEpisodes, announced, run_episodes
from scripts.e5_drills.summary import HeaderFacts, show, summary
from scripts.output import ready_folder
from scripts.progress import show_progress
from scripts.provenance import sources_sha256

#: A runner whose Lease was not renewed for this long is gone, s.
_RUNNER_GONE_S = 60.0
#: Time for which restoring the policy is retried on a silent server, s.
_GIVE_BACK_S = 60.0
#: Duration of a killed run's lease, and time for which a lease may stay unrenewed, s.
_PATIENCE_S, _BLIND_S = LEASE_S + 10.0, 120.0
_NOTES = (
    "requests were sent by the drill runner through the gateway; table and rotation were read each second "
    "from the HTTPRoute and the pods; what broke the contract is known because it was injected and proved",
    "versions are those of the machine that asked, not of the servers",
)


def run_cluster(options: ClusterOptions, *, as_json: bool = False) -> None:
    """Run the experiment in ``options``, write ``e5.json`` and the report, print the tables or JSON.

    The RoutePolicy is restored, whatever happens; after a kill the next run restores it. Raises
    DocumentError for bad input, ExperimentError and ClusterError if the cluster does not take part; finished
    episodes are kept, and the same command resumes from them.
    """
    with cluster_client() as api:
        run_on(api, options, as_json=as_json)


def undo_experiment(namespace: str, route_policy: str) -> None:
    """Undo the effects of a killed run: its drill, and the spec of its RoutePolicy."""
    with cluster_client() as api, experiment_lease(api, namespace, route_policy) as waiting:
        if not _take_back(ApiExperiment(api, namespace), route_policy, waiting):
            _say(f"RoutePolicy {route_policy}: nothing was left to give back")


def run_on(api: client.ApiClient, options: ClusterOptions, *, as_json: bool = False) -> None:
    """``run_cluster`` by ``api``."""
    cluster = ApiExperiment(api, options.namespace)
    plan_cluster(options, cluster.resources())  # refused before anything is changed
    _refuse_without_runner(cluster)
    with experiment_lease(api, options.namespace, options.route_policy) as waiting:
        _take_back(cluster, options.route_policy, waiting)
        seen = cluster.resources()
        suite = plan_cluster(options, seen)
        _refuse_in_alarm(seen.policies[options.route_policy])
        ready_folder(options.out)
        results = _run_all(cluster, suite, options, waiting)
    facts = {"namespace": options.namespace, "route_policy": options.route_policy}
    header = HeaderFacts(command=options.command, layers=("k8s", "live"), notes=_NOTES, facts=facts)
    content, page = summary(suite, results, header)
    write_results(options.out, content, page)
    _say(f"{options.out / 'report.html'}")
    show(content, suite, as_json=as_json)


@contextmanager
def experiment_lease(api: client.ApiClient, namespace: str, route_policy: str) -> Iterator[Waiting]:
    """Hold the Lease of experiments on ``route_policy`` until the block ends; ExperimentError if another run
    holds it.
    """
    name, identity = f"selvage-e5-{route_policy}", f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    leadership = Leadership(api, namespace, identity, lease=name)
    deadline_at_s = time.monotonic() + _PATIENCE_S
    while not leadership.step():
        if time.monotonic() > deadline_at_s:
            raise ExperimentError(
                f"Lease {name} of namespace {namespace} is not to be had: another selvage e5 runs on "
                f"RoutePolicy {route_policy}, or you have no right to Leases; wait for it, or ask for them"
            )
        time.sleep(0.5)
    last_at_s = [time.monotonic()]

    def still_ours() -> None:
        if leadership.step():
            last_at_s[0] = time.monotonic()
        elif time.monotonic() - last_at_s[0] > _BLIND_S:
            raise ExperimentError(f"Lease {name} was not ours for {_BLIND_S:g} s; run again")

    try:
        yield Waiting(still_ours=still_ours)
    finally:
        leadership.leave()


def _take_back(cluster: ExperimentCluster, route_policy: str, waiting: Waiting) -> bool:
    """Undo the effects of a killed run; returns whether there were any."""
    course = DrillCourse(cluster, route_policy, waiting, _say)
    try:
        left = course.clear()
    finally:
        given = BorrowedPolicy(cluster, route_policy).give_back()
    if left or given:
        _say(f"RoutePolicy {route_policy}: what a lost run left was taken back")
    return bool(left) or given


def _refuse_without_runner(cluster: ExperimentCluster) -> None:
    age_s = cluster.lease_age_s(RUNNER_LEASE)
    if age_s is None or age_s > _RUNNER_GONE_S:
        seen = "none" if age_s is None else f"one that was last seen {age_s:.0f} s ago"
        step = "apply the component k8s/manifests/components/drills, and look at its Deployment"
        expected = f"a drill runner in namespace {cluster.namespace}"
        raise option_refusal(COMMAND, "--namespace", expected, seen, step)


def _refuse_in_alarm(policy: Manifest) -> None:
    """Refuse during an alarm: an experiment begins by moving every slice home."""
    if told := in_alarm(policy):
        step = "look at the incident first; run again when Degraded is False"
        raise option_refusal(COMMAND, "--route-policy", "a pool that keeps its contract", told, step)


def _run_all(
    cluster: ExperimentCluster, suite: ClusterSuite, options: ClusterOptions, waiting: Waiting
) -> list[EpisodeResult]:
    """Run every episode that is not kept; the policy is restored at the end in any case."""
    kept = KeptEpisodes(options.out, sources_sha256("k8s", "live"), suite.policy_uid, suite.before)
    todo = [one for one in suite.episodes if kept.load(one) is None]
    _say(f"{len(suite.episodes)} episodes, {len(suite.episodes) - len(todo)} kept from before")
    minutes = suite.expected_s(len(todo)) / 60.0
    _say(f"this will take about {minutes:.0f} minutes, one episode after the other")
    policy = BorrowedPolicy(cluster, options.route_policy)
    try:
        with show_progress("running", len(suite.episodes)) as progress:
            course = DrillCourse(cluster, options.route_policy, waiting, progress.update)
            run = _runner(ExperimentPool(cluster, policy, suite, waiting), course, suite)
            return run_episodes(
                suite.episodes,
                announced(run, progress.update, _say),
                kept,
                lambda _: progress.update(advance=1.0),
            )
    finally:
        _give_back(policy)


def _runner(
    pool: ExperimentPool, course: DrillCourse, suite: ClusterSuite
) -> Callable[[DrillEpisode], EpisodeResult]:
    """Function that runs one episode: at rest, under its policy, through its drill."""

    def run(episode: DrillEpisode) -> EpisodeResult:
        pool.come_to_rest()
        drove = pool.drive(episode.configuration.name)
        images = pool.images()
        ended = course.run(suite.drill(episode), episode.entry.plan)
        pool.require_ours()
        return result_of(episode, ended, drove, images)

    return run


def _give_back(policy: BorrowedPolicy) -> None:
    """Restore ``policy``; a silent server is retried for a while."""
    deadline_at_s = time.monotonic() + _GIVE_BACK_S
    while True:
        try:
            if policy.give_back():
                _say(f"RoutePolicy {policy.name} is as it was")
            return
        except ClusterError as error:
            if time.monotonic() > deadline_at_s:
                step = f"run {COMMAND} --undo --route-policy {policy.name} when it does"
                raise ExperimentError(
                    f"RoutePolicy {policy.name} was not given back: {error}; {step}"
                ) from None
        time.sleep(1.0)


def _say(text: str) -> None:
    typer.echo(text, err=True)
