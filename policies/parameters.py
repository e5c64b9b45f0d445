"""Parameters of this project's policies, with default, range and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.plugins import Parameter, number, ratio, seconds, switch

Parameters = Mapping[str, Parameter]

HEADROOM: Parameters = {
    "fill_ratio": ratio(0.9, "share of a kernel's capacity that is planned with"),
    "return_ratio": ratio(0.75, "load over capacity below which what overflowed comes back"),
    "replan_s": seconds(30.0, "least time between two plans for capacity alone"),
}
GUARD: Parameters = {"guard_share": ratio(1.0, "weight that a kernel at guard level gives up")}
PACE: Parameters = {
    **GUARD,
    "dwell_s": seconds(120.0, "least time away before a slice comes back"),
    "first_ratio": ratio(0.1, "weight of the first step back"),
    "step_ratio": ratio(0.3, "weight of every further step back"),
    "step_s": seconds(30.0, "time between two steps back"),
    "readmit_every_s": seconds(30.0, "least time between two returns of slices to one kernel"),
}
WINDOW: Parameters = {
    "window_s": seconds(0.0, "length of the judged windows; 0: the contract's"),
    "min_samples": number(0.0, "observations below which a window says nothing; 0: the contract's"),
}
BURN_RATE: Parameters = {
    "hour_s": seconds(0.0, "what is read as an hour; 0: the contract's window"),
    "least_observations": number(10.0, "observations in a long window, below which it says nothing"),
}
SEQUENTIAL: Parameters = {
    "budget": number(0.0, "false switches per slice-month; 0: the contract's"),
    "confidence": ratio(0.95, "of the recovery test"),
    "traffic_factor": number(0.0, "times the ARL0 for traffic clauses; 0: calibrated thresholds"),
    "lowered_arl0": number(1000.0, "ARL0 of a kernel's other slices while one is in alarm, in observations"),
    "spread": switch(True, "bet on how widely observations spread as well"),
    "drift": switch(True, "compare probes with certified values, or with what was seen in health"),
    "prior": switch(False, "take a drift as the likely begin of a change"),
}
COSTS: Parameters = {
    "capacity": number(0.01, "cost of serving a request on the dearest kernel"),
    "away": number(0.02, "cost of serving away from home"),
    "move": number(0.005, "cost of moving weight"),
    "overload": number(0.2, "cost of load beyond the planned capacity"),
    "fill_ratio": HEADROOM["fill_ratio"],
}
PROGRAM: Parameters = {
    "dwell_s": seconds(60.0, "least time between two moves of a slice"),
    "evidence_weight": number(0.0, "loss believed of a kernel that is near an alarm, in units of its limit"),
    "load_tolerance": number(0.15, "change of the load, relative, that is no reason for a new plan"),
    "replan_s": seconds(30.0, "least time between two plans for load alone"),
}
BREAKER: Parameters = {
    "consecutive_failures": number(5.0, "failed answers in a row before a replica is ejected"),
    "interval_s": seconds(10.0, "time between two sweeps"),
    "base_ejection_s": seconds(30.0, "time of the first ejection"),
    "max_ejection_s": seconds(300.0, "longest ejection"),
    "max_ejection_ratio": ratio(0.1, "share of the replicas that may be ejected"),
    "panic_ratio": ratio(0.5, "share of healthy replicas below which ejections are ignored"),
}
INFORMED: Parameters = {"program": switch(True, "plan by the linear program, else by two thresholds")}
