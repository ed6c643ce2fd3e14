"""Other people's figures for the same data: ``python learning_oracle.py < DATA``, JSON to JSON.

`ville`: intervals for a mean, by betting. `truescore`:
prediction-powered inference (PPI++). `vowpalwabbit`: the value of always choosing action 2, from
logged exchanges, by inverse propensities and by its own doubly robust estimate. `judgekeeper`: its
recorded judge, with the labels of the same answers and how far it says that these agree.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from judgekeeper.demo import DEMO_DATA
from judgekeeper.metrics import agreement
from truescore.correct import ppi_estimate
from ville.means import BettingCS
from vowpalwabbit import Workspace


def off_policy(logged: list[tuple[int, float, float]], kind: str) -> float:
    space = Workspace(f"--cb 2 --cb_type {kind} --eval --quiet --noconstant")
    for action, reward, propensity in logged:
        space.learn(f"2 {action}:{reward}:{propensity} | x")
    value = space.get_sum_loss() / len(logged)
    space.finish()
    return float(value)


def recorded_judge() -> dict[str, object]:
    lines = (DEMO_DATA / "anchors.jsonl").read_text().splitlines()
    anchors = [json.loads(line) for line in lines]
    said = {}
    for line in (DEMO_DATA / "runs" / "run-01.jsonl").read_text().splitlines():
        value = json.loads(line)
        if value["type"] == "judgment":
            said[value["id"]] = value["verdict"]
    labels = [one["human_label"] for one in anchors]
    verdicts = [said[one["id"]] for one in anchors]
    return {
        "labels": labels,
        "verdicts": verdicts,
        "lengths": [len(one["output"]) for one in anchors],
        "agreement": agreement(labels, verdicts, "pass", "fail"),
    }


def main() -> None:
    data = json.load(sys.stdin)
    judged, others, grades = data["judged"], data["judged_only"], data["grades"]
    powered = ppi_estimate(np.array(judged + others), np.array(grades), np.arange(len(grades)))
    out = {
        "betting": BettingCS(grid=2000, intersect=False).fit(data["values"]).interval(),
        "prediction_powered": (powered.point, powered.low, powered.high),
        "recorded_judge": recorded_judge(),
        "ips": off_policy(data["logged"], "ips"),
        "dr": off_policy(data["logged"], "dr"),
    }
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
