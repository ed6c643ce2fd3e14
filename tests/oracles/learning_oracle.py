"""Other people's figures for the same data: ``python learning_oracle.py < DATA``, JSON to JSON.

`ville`: intervals for a mean, by betting and by empirical Bernstein. `truescore`:
prediction-powered inference (PPI++). `vowpalwabbit`: the value of always choosing action 2, from
logged exchanges, by inverse propensities and by its own doubly robust estimate.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from truescore.correct import ppi_estimate
from ville.means import BettingCS, EmpiricalBernsteinCS
from vowpalwabbit import Workspace


def off_policy(logged: list[tuple[int, float, float]], kind: str) -> float:
    space = Workspace(f"--cb 2 --cb_type {kind} --eval --quiet --noconstant")
    for action, reward, propensity in logged:
        space.learn(f"2 {action}:{reward}:{propensity} | x")
    value = space.get_sum_loss() / len(logged)
    space.finish()
    return float(value)


def main() -> None:
    data = json.load(sys.stdin)
    judged, others, grades = data["judged"], data["judged_only"], data["grades"]
    powered = ppi_estimate(np.array(judged + others), np.array(grades), np.arange(len(grades)))
    out = {
        "betting": BettingCS(grid=2000, intersect=False).fit(data["values"]).interval(),
        "empirical_bernstein": EmpiricalBernsteinCS().fit(data["values"]).interval(),
        "prediction_powered": (powered.point, powered.low, powered.high),
        "ips": off_policy(data["logged"], "ips"),
        "dr": off_policy(data["logged"], "dr"),
    }
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
