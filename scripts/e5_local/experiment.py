"""``selvage e5 --target local``: every episode on one fleet of this machine, one after the other."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import typer

from scripts.drill.local import drilled_fleet, refuse_unfit, unfit_policies
from scripts.e5.run.experiment import write_results
from scripts.e5_drills.plan import DrillEpisode
from scripts.e5_drills.results import EpisodeResult, KeptEpisodes, announced, run_episodes
from scripts.e5_drills.summary import HeaderFacts, show, summary
from scripts.e5_local.episodes import EpisodeFleet, driver_of
from scripts.e5_local.plan import LocalOptions, LocalSuite, plan_local
from scripts.output import ready_folder
from scripts.progress import show_progress
from scripts.provenance import cores, cpu_model, sources_sha256
from scripts.setup.warm import warm


def run_local(options: LocalOptions, *, as_json: bool = False) -> None:
    """Run the experiment in ``options`` on one fleet, write ``e5.json`` and the report, print tables or JSON.

    Raises DocumentError for bad input and, before anything starts, for reasons that prevent an episode
    (``refuse_unfit``); LiveError and DrillError if the fleet does not take part. Finished episodes are kept,
    and the same command resumes from them.
    """
    suite = drop_unfit_policies(plan_local(options), options)
    kept = KeptEpisodes(options.out, sources_sha256("live"), cpu_model(), cores())
    todo = [one for one in suite.episodes if kept.load(one) is None]
    refuse_unfit([suite.drills[one.entry.name] for one in todo], options.folder, map(driver_of, todo))
    ready_folder(options.out)
    _say(f"{len(suite.episodes)} episodes, {len(suite.episodes) - len(todo)} kept from before")
    _say(
        f"this will take about {suite.expected_s(len(todo)) / 60.0:.0f} minutes, one episode after the other"
    )
    if todo:
        with show_progress("compiling", len(todo)) as progress:
            warm(lambda done, known: progress.update(f"compiling {done} of {known}"))
    results = _run_all(suite, options, kept, todo)
    content, page = summary(suite, results, HeaderFacts(command=options.command))
    write_results(options.out, content, page)
    _say(f"{options.out / 'report.html'}")
    show(content, suite, as_json=as_json)


def drop_unfit_policies(suite: LocalSuite, options: LocalOptions) -> LocalSuite:
    """``suite`` without default policies that cannot drive this fleet; those left out are reported.

    A policy that is certified for other fleets would report the results of its fallback under its own name.
    Policies that the user named are kept.
    """
    if options.policies:
        return suite
    drivers = {one.configuration.name: driver_of(one) for one in suite.episodes}
    unfit = unfit_policies(suite.drills.values(), drivers.values())
    for name, driver in drivers.items():
        if driver.policy in unfit:
            _say(f"without {name}: {'; '.join(problem.actual for problem in unfit[driver.policy])}")
    fits = tuple(one for one in suite.configurations if drivers[one.name].policy not in unfit)
    return replace(suite, configurations=fits) if fits else suite


def _run_all(
    suite: LocalSuite, options: LocalOptions, kept: KeptEpisodes, todo: list[DrillEpisode]
) -> list[EpisodeResult]:
    """Every episode, on a fleet that is started if anything must be run."""
    with ExitStack() as stack:
        if todo:
            drill = suite.drills[suite.entries[0].name]
            stack.enter_context(drilled_fleet(drill.fleet, options.folder, _say))
        progress = stack.enter_context(show_progress("running", len(suite.episodes)))
        fleet = EpisodeFleet(options.folder, options.out, suite.drills)
        return run_episodes(
            suite.episodes,
            announced(fleet.run, progress.update, _say),
            kept,
            lambda _: progress.update(advance=1.0),
        )


def _say(text: str) -> None:
    typer.echo(text, err=True)
