"""``python -m benchmarks.learning alarms|cap|coverage|prompts|router|swap [--seed N]``."""

from __future__ import annotations

import argparse

from benchmarks.learning import alarms, cap, coverage, prompts, router, swap

_TABLES = {
    "alarms": alarms.table,
    "cap": cap.table,
    "coverage": coverage.table,
    "prompts": prompts.table,
    "router": router.table,
    "swap": swap.table,
}


def main() -> None:
    """Print a table, a line as each is known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("name", choices=tuple(_TABLES))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    _TABLES[arguments.name](arguments.seed)


if __name__ == "__main__":
    main()
