"""``remit setup``: sets up a provider, a key with a budget and a client, and tries one call."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.client_snippets import CLIENTS, snippet
from remit.cli.options import reads
from remit.cli.output import echo_json, note, say, say_text, show_step
from remit.cli.roots import open_ledger, whoami
from remit.cli.setup_provider import Choice, chosen, opener, secret_of, variables_of
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.message_text import dollars

if TYPE_CHECKING:
    from remit.gateway.auth import NewKey
    from remit.kernel.root import Root
    from remit.kernel.settings import Settings

_CALL_S = 300.0
_TOKENS = 256  # The output limit of the first call.
_UNKNOWN_WINDOW = 131_072
"""The context window, in tokens, assumed of a free model whose server does not state it."""


@click.command()
@click.option("--provider", help="anthropic, openai, ollama, local, or a provider of remit.toml "
                                 "(default: the first one found).")  # fmt: skip
@click.option("--base-url", help="URL of an OpenAI-compatible server, such as http://HOST:8000/v1.")
@click.option("--model", help="Default model.")
@click.option("--free", is_flag=True, help="The server is free: set the model's price to 0.")
@click.option("--budget-usd", default="5", show_default=True, help="Budget of the key.")
@click.option("--key-name", default="first", show_default=True, help="Name of the key.")
@click.option("--client", type=click.Choice(CLIENTS), help="Client to print configuration for.")
@click.option("--save-key", is_flag=True, help="Store the provider's key in remit.toml, in plain "
                                               "text (mode 0600). Otherwise the key stays in the "
                                               "environment.")  # fmt: skip
@click.option("--no-call", is_flag=True, help="Do not make a first call.")
@click.option("--yes", is_flag=True, help="Do not ask questions.")
@reads
def setup(root: Path | None, as_json: bool, **given: Any) -> None:
    """Set up a provider and keys, and make a first call.

    One key has a budget, another signs in to the console. A root is created if none exists. The
    command asks questions only in a terminal. If run again, the command keeps existing settings
    and creates a new key.
    """
    from remit.gateway.budget import nano_of
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings
    from remit.runtime import make_root

    asks = sys.stdin.isatty() and not given["yes"] and not as_json
    nano_of(given["budget_usd"])  # wrong use shows before anything is made
    place = find_root(root)
    settings = load_settings(place.config if place.exists() else None).settings
    choice = chosen(settings, given, asks)
    secret = secret_of(settings, choice, asks)
    if asks:
        given["budget_usd"] = click.prompt(
            "Budget of the key in US dollars", default=given["budget_usd"], value_proc=_amount,
            err=True,
        )  # fmt: skip
    if not place.exists():
        note(f"Creating a root at {place.path.resolve()}.")
        make_root(place, by=whoami(), step=show_step)
    _configure(place, settings, choice, secret if given["save_key"] else "")
    _price(place, choice)
    made, operator = _keys(place, given)
    settings = load_settings(place.config).settings
    url = f"http://{settings.server.host}:{settings.server.port}"
    name = f"{choice.provider}/{choice.model}"
    client = given["client"] or ("anthropic" if choice.provider == "anthropic" else "openai")
    lines = snippet(client, url=url, key=made.key, model=name)
    report: dict[str, Any] = {
        "root": str(place.path), "provider": choice.provider, "model": choice.model,
        "key": {"id": made.key_id, "name": made.name, "key": made.key},
        "budget_usd": float(given["budget_usd"]), "url": url, "client": client, "snippet": lines,
        "console_key": None if operator is None
        else {"id": operator.key_id, "name": operator.name, "key": operator.key},
        "call": None,
    }  # fmt: skip
    if not as_json:
        note(f"Using {name}. Created the key '{made.name}' ({made.key_id}) with a budget of "
             f"{dollars(float(given['budget_usd']))}; its secret is shown only once:")  # fmt: skip
        say(made.key)
        if operator is not None:
            note(f"\nSign in to the console at {url} with the operator key '{operator.name}'; its "
                 "secret is shown only once:")  # fmt: skip
            note(operator.key)
    call = None
    try:
        if not given["no_call"]:
            report["call"] = call = _call(place, choice, made)
    finally:  # Secrets are shown only once, so a failed call must not hide them.
        if as_json:
            echo_json(report)
    if as_json:
        return
    if call is not None:
        note(f"\nFirst call: {call['exchange']}, {_cost(call)}; `remit ledger show "
             f"{call['exchange']}` shows the entry.")  # fmt: skip
    note(f"\nClient code for {client}, for use while `remit serve` runs on {url}:")
    say_text(lines, nl=False)
    if needed := variables_of(settings, choice):
        note(f"\n`remit serve` requires {' and '.join(needed)} in its environment.")
    proof = f"`remit ledger check-proof {call['exchange']}` proves the call; " if call else ""
    note(f"\nnext: {proof}`remit serve` starts the server, with the console at {url}; `remit "
         "doctor` checks the installation.")  # fmt: skip


def _amount(text: str) -> str:
    """Return the text of an amount in US dollars unchanged.

    Raises:
        click.BadParameter: the text is not an amount, so a prompt asks again.
    """
    from remit.gateway.budget import nano_of

    try:
        nano_of(text)
    except InvalidInputError as error:
        raise click.BadParameter(error.message) from error
    return text


def _configure(place: Root, settings: Settings, choice: Choice, secret: str) -> None:
    """Write changed settings of the choice into ``remit.toml``, and print their names."""
    from remit.kernel.settings.edit import set_values

    values = {}
    default = "local" if choice.provider == "local" else f"{choice.provider}/{choice.model}"
    if choice.provider == "local" and choice.model != settings.local.model:
        values["local.model"] = choice.model
    if settings.model.default != default:
        values["model.default"] = default
    if choice.base_url and settings.providers[choice.provider].base_url != choice.base_url:
        values[f"providers.{choice.provider}.base_url"] = choice.base_url
    if secret:
        values[f"providers.{choice.provider}.api_key"] = secret
    if values:
        set_values(place.config, values)
        note(f"Set in remit.toml: {', '.join(sorted(values))}")


def _price(place: Root, choice: Choice) -> None:
    """Record the price 0 for a free model without a price.

    Raises:
        RemitError: the model has no price and is not free.
    """
    from datetime import UTC, datetime

    from remit.kernel.settings import load_settings
    from remit.packages import RootPrices, change_own_prices, prices_of
    from remit.providers.prices import Overlay

    settings = load_settings(place.config).settings
    prices = prices_of(place, settings.budget.prices)
    if choice.provider in settings.budget.free_providers:
        return
    if prices.table.find(choice.provider, choice.model) is not None and not choice.free:
        return
    if not choice.free:
        raise RemitError(
            f"{choice.provider}/{choice.model} has no price, so a dollar budget refuses its calls.",
            next_step=f"Set a price: `remit price set {choice.provider}/{choice.model} --input … "
            "--output … --context-window … --max-output-tokens …`; or pass --free.",
        )
    day = datetime.now(UTC).date()

    def change(found: RootPrices) -> Overlay:
        sizes = {"max_output_tokens": _UNKNOWN_WINDOW, "context_window": _UNKNOWN_WINDOW}
        entry = {"provider": choice.provider, "date": day, "input": "0", "output": "0",
                 "source": f"free, at {choice.base_url}", **sizes}  # fmt: skip
        return found.own.with_entry(
            found.own.key_of(choice.provider, choice.model, found.base), entry, day
        )

    with open_ledger(place.path, signing=True) as ledger:
        _, entry_id = change_own_prices(
            place, ledger, settings.budget.prices, change, by=whoami(),
            wait_s=settings.packages.lock_timeout_s, reason="A free model was set up",
        )  # fmt: skip
    if entry_id:
        note(f"{choice.provider}/{choice.model} has the price 0, recorded as {entry_id}.")


def _keys(place: Root, given: dict[str, Any]) -> tuple[NewKey, NewKey | None]:
    """Create a key with the budget, and an operator key unless a key may operate the console.

    Both have names that no key has yet.
    """
    from remit.gateway.auth import KeyStore
    from remit.gateway.budget import BudgetLimits, TokenBudgeter

    limits = BudgetLimits.of(usd=given["budget_usd"])
    with open_ledger(place.path, signing=True) as ledger, KeyStore(ledger) as keys:
        existing = keys.list()
        taken = {key.name for key in existing}

        def create(name: str, **more: Any) -> NewKey:
            names = (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3)))
            free = next(one for one in names if one not in taken)
            taken.add(free)
            return keys.create(free, requested_by=whoami(), **more)

        budget = TokenBudgeter(ledger).for_new_key(limits, whoami())
        made = create(given["key_name"], in_transaction=budget)
        now = ledger.wall_time
        has_operator = any(
            key.state_at(now) == "live" and key.role == "operator" for key in existing
        )
        return made, None if has_operator else create("console", role="operator")


def _call(place: Root, choice: Choice, made: NewKey) -> dict[str, Any]:
    """Make one call with the key over HTTP, like a client, and return the result.

    Raises:
        RemitError: the call was refused or failed; the key stays valid.
    """
    from remit.runtime import Runtime
    from remit.server import LoopbackServer

    messages = [{"role": "user", "content": "Say hello in one short sentence."}]
    body = {"model": f"{choice.provider}/{choice.model}", "messages": messages}
    with Runtime.open(place.path, by=whoami()) as runtime, LoopbackServer(runtime) as server:
        price = runtime.prices.find(choice.provider, choice.model)
        named_otherwise = price is not None and price.max_completion_tokens
        limit = "max_completion_tokens" if named_otherwise else "max_tokens"
        request = urllib.request.Request(  # noqa: S310 - of our own, on loopback
            f"{server.url}/v1/chat/completions",
            json.dumps({**body, limit: _TOKENS}).encode(),
            {"authorization": f"Bearer {made.key}", "content-type": "application/json"},
        )
        try:
            with opener(server.url).open(request, timeout=_CALL_S) as reply:
                headers, said = reply.headers, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            wait_s = error.headers.get("retry-after")
            again = f"Try again in {wait_s} seconds. " if wait_s else ""
            raise RemitError(
                f"The first call failed with status {error.code}: {_message(error.read())}",
                next_step=f"{again}The key {made.name} was created and stays valid. `remit ledger "
                "tail` shows the recorded events; `remit doctor` checks the installation.",
            ) from error
    cost = headers.get("x-remit-cost-usd")
    return {
        "exchange": headers.get("x-remit-exchange"),
        "cost_usd": None if cost is None else float(cost),
        "cost_certainty": headers.get("x-remit-cost-certainty"),
        "answer": said["choices"][0]["message"].get("content"),
    }


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def _cost(call: dict[str, Any]) -> str:
    if call["cost_usd"] is None:
        return "unknown cost"
    return f"{dollars(call['cost_usd'])} ({call['cost_certainty']})"
