"""The choice of the provider and the model for ``remit setup``."""

from __future__ import annotations

import ipaddress
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from remit.cli.output import note
from remit.kernel.errors import RemitError, nearest
from remit.kernel.message_text import count

if TYPE_CHECKING:
    from remit.kernel.settings import Settings

_OLLAMA = "http://127.0.0.1:11434"
_PROBE_S = 2.0
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """A provider and a model.

    Attributes:
        provider: the name in ``remit.toml``.
        model: the provider's name of the model.
        base_url: the URL of the user's own server; empty for the provider's server.
        free: True if calls cost nothing.
    """

    provider: str
    model: str
    base_url: str = ""
    free: bool = False


def chosen(settings: Settings, given: dict[str, Any], asks: bool) -> Choice:
    """Return the named provider, or else the first provider found; a person may choose another.

    A base URL without a provider means ``openai``. ``ollama`` gives ``openai`` at the address of
    Ollama. A person is asked only if nothing is named; then found providers are printed.

    Args:
        settings: the root's settings.
        given: the options of the command.
        asks: True to ask a person in the terminal.

    Raises:
        RemitError: no provider was found, or the user's own server lists no model.
        click.UsageError: the named provider is unknown, or the base URL is not http(s).
    """
    wanted, base_url = given["provider"], given["base_url"]
    names = [*settings.providers, "ollama", "local"]
    if wanted is None and base_url:
        wanted = "openai"
    if wanted is not None and wanted not in names:
        near = nearest(wanted, names)
        hint = f"Did you mean {near}?" if near else f"Use {', '.join(names)}."
        raise click.UsageError(f"Unknown provider {wanted!r}. {hint}")
    if wanted is None:
        found = list(_found(settings))
        if not found:
            raise RemitError(
                "No provider was found: no key in the environment, no Ollama on this machine, "
                "and no local model.",
                next_step="Set ANTHROPIC_API_KEY or OPENAI_API_KEY, give --base-url, or run "
                "`remit model pull` and `remit setup --provider local`.",
            )
        for name, why in found:
            note(f"Found {name}: {why}")
        wanted = found[0][0]
        if asks:
            wanted = click.prompt("Which provider", type=click.Choice(names), default=wanted,
                                  err=True)  # fmt: skip
    if wanted == "ollama" or base_url:
        return _own_server(wanted, base_url, given)
    if wanted == "local":
        return Choice("local", given["model"] or settings.local.model, free=True)
    return Choice(wanted, given["model"] or settings.providers[wanted].default_model)


def _found(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield usable providers, each with the evidence in words."""
    from remit.runtime import weight_store

    order = [*settings.model.auto_order, *settings.providers]
    for name in dict.fromkeys(order):
        if name in settings.providers:
            provider = settings.providers[name]
            if os.environ.get(provider.api_key_env):
                yield name, f"{provider.api_key_env} is set"
            elif provider.api_key.get_secret_value():
                yield name, "the key is in remit.toml"
            elif os.environ.get(provider.base_url_env):
                yield name, f"{provider.base_url_env} is set"
    if models := _listed(f"{_ollama()}/v1", _PROBE_S):
        yield "ollama", f"{count(len(models), 'model')} at {_ollama()}"
    if settings.local.model in {path.stem for path in weight_store(settings).list()}:
        yield "local", f"{settings.local.model} is installed"


def _own_server(wanted: str, base_url: str | None, given: dict[str, Any]) -> Choice:
    """Return the choice of a model on the user's own OpenAI-compatible server.

    Without a named model, the first model that the server lists is chosen.

    Raises:
        RemitError: no model is named, and the server cannot be reached or lists no model.
        click.UsageError: the URL is not an http(s) URL.
    """
    url = (base_url or f"{_ollama()}/v1").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--base-url is {url!r}, which is not an http(s) URL.")
    model = given["model"]
    if not model:
        models = _listed(url, _PROBE_S)
        if not models:
            raise RemitError(
                f"The server at {url} lists no models.",
                next_step="Start the server, pull a model (`ollama pull …`), or give one with "
                "--model.",
            )
        model = models[0]
    provider = "openai" if wanted == "ollama" else wanted
    return Choice(provider, model, url, given["free"] or _on_this_machine(url))


def _ollama() -> str:
    host = os.environ.get("OLLAMA_HOST", "")
    return (host if "://" in host else f"http://{host}" if host else _OLLAMA).rstrip("/")


def _on_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener of URLs; URLs of this machine bypass any proxy."""
    direct = [urllib.request.ProxyHandler({})] if _on_this_machine(url) else []
    return urllib.request.build_opener(*direct)


def _listed(base_url: str, wait_s: float) -> list[str]:
    """Return the models of an OpenAI-compatible server; an empty list if no valid reply arrives."""
    try:
        with opener(base_url).open(f"{base_url}/models", timeout=wait_s) as reply:
            data = json.loads(reply.read(_MAX_BYTES))
        return [str(item["id"]) for item in data["data"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def variables_of(settings: Settings, choice: Choice) -> list[str]:
    """Return the environment variables that configure the choice and that settings do not store."""
    if choice.provider == "local":
        return []
    provider = settings.providers[choice.provider]
    stored = {provider.api_key_env: provider.api_key.get_secret_value(),
              provider.base_url_env: choice.base_url}  # fmt: skip
    return [name for name, value in stored.items() if not value and os.environ.get(name)]


def secret_of(settings: Settings, choice: Choice, asks: bool) -> str:
    """Return the provider's key; empty if none is needed or the settings have the key.

    A key in the environment comes first. A typed key is put into the environment of this process
    and not stored.

    Args:
        settings: the settings in force.
        choice: the provider.
        asks: True if a person can type the key.

    Raises:
        RemitError: the provider needs a key, and none was found or typed.
    """
    if choice.provider == "local":
        return ""
    provider = settings.providers[choice.provider]
    variable = provider.api_key_env
    if key := os.environ.get(variable, ""):
        return key
    if choice.base_url or provider.api_key.get_secret_value() or not provider.base_url_env:
        return ""
    if os.environ.get(provider.base_url_env):
        return ""
    if asks:
        key = str(click.prompt(f"Key of {choice.provider}", hide_input=True, err=True)).strip()
        os.environ[variable] = key  # Child processes inherit the key.
        note(
            f"The key is not stored. Run `export {variable}=…` before `remit serve`, or use "
            "--save-key."
        )
        return key
    raise RemitError(
        f"The provider {choice.provider} has no API key.",
        next_step=f"Set {variable} and try again.",
    )
