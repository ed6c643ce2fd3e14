"""Other people's figures for the same data: ``python learning_oracle.py < DATA``, JSON to JSON.

`ville`: intervals for a mean, by betting. `truescore`: prediction-powered inference (PPI++).
"""

from __future__ import annotations

import json
import sys

import numpy as np
from truescore.correct import ppi_estimate
from ville.means import BettingCS


def main() -> None:
    data = json.load(sys.stdin)
    judged, others, grades = data["judged"], data["judged_only"], data["grades"]
    powered = ppi_estimate(np.array(judged + others), np.array(grades), np.arange(len(grades)))
    out = {
        "betting": BettingCS(grid=2000, intersect=False).fit(data["values"]).interval(),
        "prediction_powered": (powered.point, powered.low, powered.high),
    }
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
