"""What command lines of benchmarks of parts share."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import describe_machine


def numbers(text: str) -> list[int]:
    """Whole numbers between commas."""
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """Names between commas."""
    return text.split(",")


def parser_of(module: str) -> argparse.ArgumentParser:
    """A parser with ``--dir`` and ``--json``."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--dir", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--json", type=Path, help="file for every figure")
    return parser


@contextmanager
def run_of(given: argparse.Namespace) -> Iterator[tuple[Path, dict[str, object]]]:
    """Print the machine; give a scratch directory and the document for ``--json``."""
    with tempfile.TemporaryDirectory(prefix=".benchmarks-", dir=given.dir) as name:
        scratch = Path(name).resolve()
        document: dict[str, object] = {"machine": describe_machine(scratch)}
        print(document["machine"], flush=True)
        yield scratch, document
        if given.json:
            given.json.write_text(json.dumps(document, indent=1) + "\n")
