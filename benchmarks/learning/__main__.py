"""``python -m benchmarks.learning alarms|coverage [--seed N]``."""

from __future__ import annotations

import argparse

from benchmarks.learning import alarms, coverage


def main() -> None:
    """Print a table, a line as each is known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("name", choices=("alarms", "coverage"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    (alarms if arguments.name == "alarms" else coverage).table(arguments.seed)


if __name__ == "__main__":
    main()
