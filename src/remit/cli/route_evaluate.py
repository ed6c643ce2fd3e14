"""``remit route evaluate --register``: choices that are recorded and witnessed before answers."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.proofs import cosigned
from remit.cli.shared import FILE, common, say, whoami, write_text
from remit.kernel.canonical import canonical_json, sha256_hex


@click.command()
@click.argument("prompts", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--register", "out", type=FILE, required=True, metavar="OUT",
              help="Record the choices, and write the registration to this file.")  # fmt: skip
@click.option("--route", default="auto", show_default=True, help="Route that chooses.")
@click.option(
    "--witness", "witnesses", nargs=2, multiple=True, required=True, metavar="URL VKEY",
    help="Request a cosignature of this witness. Repeat for several witnesses.",
)  # fmt: skip
@common
def evaluate(
    root: Path | None, prompts: Path, out: Path, route: str, witnesses: tuple[tuple[str, str], ...]
) -> None:
    """Register which model a route chooses for each prompt, before the answers are known.

    PROMPTS has JSON lines with id, prompt and optionally task, and no results. The ledger records
    the choices with the hashes of the code and the rules, and each witness confirms the time.
    Nothing is sent to a model. `remit ledger verify --file OUT` checks the registration."""
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey
    from remit.packages.distribution import Distribution
    from remit.routing import read_registration, register_choices
    from remit.runtime import Runtime

    keys = [(url, VerifierKey.parse(text)) for url, text in witnesses]
    modules = Distribution.current().modules().items()
    code = sha256_hex(
        canonical_json({name: sha256_hex(file.read_bytes()) for name, file in modules})
    )
    with Runtime.open(root, by=whoami()) as runtime, prompts.open("rb") as lines:
        router, ledger = runtime.router, runtime.ledger
        facts = {"route": route, "code": f"sha256:{code}", "rules": router.rules.version_hash}

        def choose(prompt: str, task: str) -> str:
            return str(router.score_text(prompt, route=route, task=task)["winner"])

        found = register_choices(ledger, choose, lines, facts)
        signed = SignedCheckpoint.parse(found["checkpoint"])
        found["checkpoint"] = str(cosigned(ledger, signed, keys))
    data = canonical_json(found)
    registration = read_registration(data, None, [key for _, key in keys])
    write_text(out, data.decode() + "\n")
    say(registration.statement)
