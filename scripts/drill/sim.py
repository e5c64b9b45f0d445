"""A drill on the simulated fleet, driven by any policy configuration."""

from __future__ import annotations

from faults.drill.ledger import NoLedger
from faults.drill.outcome import DrillOutcome, judge
from faults.drill.runner import Say, run_drill
from policies.registry import make_configuration
from policies.spec import parse_spec
from policies.supervised import supervised_by_uri
from scripts.drill.documents import ReadDrill
from scripts.drill.inputs import NOBODY, refuse_policy
from scripts.e5.configurations import BASELINE_CONFIGURATION, notices_for
from simulator.drill import SimulatedTarget
from simulator.drive import ControllerDriver
from simulator.world.compiled_scenario import CompiledScenario


def drill_simulated(read: ReadDrill, policy: str, seed: int, say: Say, meta: str = "") -> DrillOutcome:
    """Run and judge ``read`` on the simulator, ``policy`` under the meta-contract at ``meta`` ("": none);
    DocumentError if it cannot be simulated.
    """
    named = BASELINE_CONFIGURATION if policy == NOBODY else policy

    def driver(world: CompiledScenario) -> ControllerDriver:
        try:
            notices = notices_for(parse_spec(named)[0], world)
            setup = make_configuration(named, world.setup, notices=notices)
            return ControllerDriver(supervised_by_uri(meta, named, setup, "selvage drill run"), name=policy)
        except ValueError as error:
            raise refuse_policy(error) from None

    target = SimulatedTarget(read.plan, read.pool.spec, read.pool_file, driver, seed)
    return judge(read.plan, run_drill(read.plan, target, NoLedger(), say))
