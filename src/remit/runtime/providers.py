"""The available providers, and the model that answers by default."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from remit.gateway import AnyProvider, LLMGateway, RouterConfig, owner_by_prefix, split_name
from remit.gateway.auth import LocalOperator
from remit.gateway.budget import TokenBudgeter
from remit.kernel.errors import ConfigError, RemitError
from remit.kernel.exchange import ModelCapabilities
from remit.kernel.secrets import redact_secrets
from remit.kernel.settings import ProviderSettings, Settings, default_settings
from remit.ledger import LedgerClient
from remit.packages import policy_epoch
from remit.providers import LocalProvider, UpstreamProvider
from remit.providers.prices import PriceTable
from remit.providers.weights import WeightStore, known_models

_PROVIDER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Providers:
    """The available providers; makes the gateway, and lists the models that can be named.

    Immutable; the adapters connect when they are first called.

    Attributes:
        reachable: the providers in ``configured``, and ``local`` if its model is installed, keyed
            by provider id.
        configured: ids of the program's own providers, then of those in the settings. A shipped
            provider is included only with a key, or with a base URL that the user set.
        own: default models of the program's own providers, keyed by provider id.
    """

    reachable: Mapping[str, AnyProvider]
    configured: tuple[str, ...]
    own: Mapping[str, str]

    def capabilities(self, provider_id: str, model_id: str) -> ModelCapabilities:
        """Return the capabilities of a model. The provider is not called.

        If its provider is not available or states none, ``native_tools`` is False and every other
        capability is True.

        Args:
            provider_id: id of the provider.
            model_id: the provider's name of the model.
        """
        capabilities = getattr(self.reachable.get(provider_id), "capabilities", None)
        if capabilities is None:
            return ModelCapabilities(native_tools=False)
        found: ModelCapabilities = capabilities(model_id)
        return found

    def gateway(
        self,
        ledger: LedgerClient,
        budgeter: TokenBudgeter,
        settings: Settings,
        model: tuple[str, str],
        prices: PriceTable,
    ) -> LLMGateway:
        """Return a gateway to the reachable providers, for the local operator.

        Calls of dead processes are settled.

        Args:
            ledger: ledger of the root.
            budgeter: budgets of the root.
            settings: settings of the root.
            model: provider id and model id that answer if a call names none.
            prices: prices in force.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        config = RouterConfig.from_settings(settings, *model, policy_epoch(ledger))
        gateway = LLMGateway(
            ledger, budgeter, config, LocalOperator(), budget_mode=settings.budget.mode,
            prices=prices,
        )  # fmt: skip
        for name, provider in self.reachable.items():
            gateway.register_provider(name, provider)
        gateway.recover()
        return gateway

    def models(
        self, settings: Settings, prices: PriceTable, routes: Iterable[str]
    ) -> dict[str, str]:
        """Return the models and routes that can be named, each with its provider, keyed by name.

        These are default models of reachable providers, the local model, models of
        ``[routing.models]``, and priced models of providers that are the program's own or at their
        own address, each only of a reachable provider. If two providers have one model, ``local``
        comes first, then the program's own providers, then providers whose default model it is.
        Routes and names of ``[gateway.fallbacks]`` have the provider ``remit``, unless a model has
        the same name. No provider is called.

        Args:
            settings: settings of the root.
            prices: prices in force.
            routes: names of the routes.
        """
        shipped = default_settings()
        found = {
            provider.default_model: name
            for name, provider in settings.providers.items()
            if provider.default_model and name in self.reachable and name not in self.own
        }  # fmt: skip
        found |= {model: name for name, model in self.own.items()}
        if "local" in self.reachable and "local" not in self.own:
            found[settings.local.model] = "local"
        for name, model in settings.routing.models.items():
            if model.provider in self.reachable and name not in shipped.routing.models:
                found.setdefault(name, model.provider)
        known = {name for name, provider in settings.providers.items() if is_own(name, provider)}
        for price in prices:
            if price.provider in self.reachable and price.provider in known | self.own.keys():
                found.setdefault(price.model, price.provider)
        for names in (settings.gateway.fallbacks, routes):
            for name in names:
                found.setdefault(name, "remit")
        return found


def weight_store(settings: Settings) -> WeightStore:
    """Return the store of local models' weights, in ``[local] cache_dir`` or the user's cache;
    nothing is read.

    Args:
        settings: settings of the root.
    """
    directory = settings.local.cache_dir
    return WeightStore(Path(directory) if directory else None)


def assemble_providers(
    settings: Settings,
    local_model: str | None,
    environment: Mapping[str, str] | None = None,
    own: Mapping[str, AnyProvider] | None = None,
) -> Providers:
    """Build the adapters that the configuration and the environment allow.

    No provider is called. A local model that is not installed is left out, as is a shipped provider
    without a key and without a base URL that the user set.

    Args:
        settings: settings of the root.
        local_model: the local model to run; the configured one if ``None``.
        environment: variables with keys and base URLs; those of the process if left out.
        own: the program's own providers, by id; each replaces a configured one of that id.

    Raises:
        ConfigError: a base URL cannot be used, the library for a cloud's credentials is missing, an
            id of the program's cannot name a provider, or its object is no provider.
    """
    variables = os.environ if environment is None else environment
    reachable: dict[str, AnyProvider] = {}
    configured: list[str] = []
    for name, provider in settings.providers.items():
        # A key that was pasted with its line end cannot be put into a header.
        key = (
            variables.get(provider.api_key_env, "") or provider.api_key.get_secret_value()
        ).strip()
        shipped = bool(provider.base_url_env)
        own_url = variables.get(provider.base_url_env, "") if shipped else ""
        if not (key or own_url or not shipped or _is_elsewhere(name, provider)):
            continue
        url = (own_url or provider.base_url).strip()
        if not _is_web_address(url):
            raise ConfigError(
                f"The base URL of provider {name} is {redact_secrets(url)!r}, which is not an "
                "http(s) URL.",
                next_step=f"Set [providers.{name}] base_url.",
            )
        reachable[name] = UpstreamProvider(url, key, provider, name)
        configured.append(name)
    model = local_model or settings.local.model
    with contextlib.suppress(RemitError):  # A command that needs a model reports it.
        store = weight_store(settings)
        path = store.path(model)
        reachable["local"] = LocalProvider(path, model, settings.local, store.sha256(model))
    models = {name: _own_model(name, brought) for name, brought in (own or {}).items()}
    reachable.update(own or {})
    others = (name for name in configured if name not in models)
    return Providers(reachable, (*models, *others), models)


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # Raises an error unless it is a number in range.
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _own_model(name: str, brought: AnyProvider) -> str:
    """Return the default model of a program's own provider; raise ConfigError if it is none."""
    if not _PROVIDER_ID.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid provider name.",
            next_step="Use at most 64 letters, digits, '_' and '-'.",
        )
    can_answer = any(hasattr(brought, name) for name in ("send", "asend", "astream"))
    if isinstance(brought, type) or not can_answer:
        raise ConfigError(
            f"providers[{name!r}] is {brought!r}, which is not a provider.",
            next_step="Give an object with a method send(), asend() or astream(); pass the "
            "name of a model to agent(model=…).",
        )
    return str(getattr(brought, "default_model", name))


def choose_model(settings: Settings, wanted: str, providers: Providers) -> tuple[str, str]:
    """Return the provider and model that ``wanted`` names.

    The provider may be unavailable: not in ``providers.reachable``. ``auto`` means the first of the
    program's own providers, else the first configured provider in ``[model] auto_order`` or after
    it, else ``local``. A provider id alone means its default model.

    A name in ``[routing.models]`` means the model there. Another model name goes to ``local`` if
    the model is configured there or stored on the disk. Otherwise it goes to the provider of its
    prefix in ``[model] prefixes``. Any other name goes to the provider that ``auto`` means, if a
    provider is configured.

    Args:
        settings: settings of the root.
        wanted: ``auto``, a provider id, a model name, or ``provider/model``. The provider before
            ``/`` may be unknown.
        providers: the available providers.

    Returns:
        The ids of provider and model.

    Raises:
        ConfigError: no provider is configured, and the model name is neither local nor has a known
            prefix.
    """
    if (routed := settings.routing.models.get(wanted)) is not None:
        return routed.provider, routed.served_as or wanted
    if wanted == "auto":
        order = [*providers.own]
        order += [name for name in settings.model.auto_order if name in providers.configured]
        order += [name for name in providers.configured if name not in order]
        wanted = order[0] if order else "local"
    defaults = {name: one.default_model for name, one in settings.providers.items()}
    defaults = {**defaults, "local": settings.local.model, **providers.own}
    head, tail = split_name(wanted, defaults)
    if head:
        return head, tail or defaults[head]
    stored = {path.stem for path in weight_store(settings).list()}
    if wanted in stored or wanted == settings.local.model:
        return "local", wanted
    if owner := owner_by_prefix(settings.model.prefixes, wanted):
        return owner, wanted
    if providers.configured:
        return choose_model(settings, "auto", providers)[0], wanted
    raise ConfigError(
        f"No provider has the model {wanted!r}.",
        next_step="Use provider/model, set a key or a base URL, or choose a local model (`remit "
        "model list`).",
    )


def resolve_model(
    settings: Settings, wanted: str | None = None, own: Mapping[str, AnyProvider] | None = None
) -> tuple[Providers, str, str]:
    """Return the providers, and the provider and model that answer if a call names none.

    No provider is called, and the chosen one may be unavailable; see :func:`choose_model`.

    Args:
        settings: settings of the root.
        wanted: replaces the configured ``[model] default``.
        own: the program's own providers, keyed by id. The first answers if ``wanted`` is not given.

    Raises:
        ConfigError: an error of :func:`choose_model` or :func:`assemble_providers`.
    """
    providers = assemble_providers(settings, None, own=own)
    default = wanted or (next(iter(own)) if own else settings.model.default)
    provider_id, model_id = choose_model(settings, default, providers)
    if provider_id == "local" and model_id != settings.local.model:
        providers = assemble_providers(settings, model_id, own=own)
    return providers, provider_id, model_id


def require_reachable(
    settings: Settings, providers: Providers, provider_id: str, model_id: str
) -> None:
    """Raise RemitError unless a provider is set up and a model is named. Nothing is called.

    The model's name is the provider's to judge, because a new model has no price yet.

    Args:
        settings: settings of the root.
        providers: the available providers.
        provider_id: id of the provider.
        model_id: the provider's name of the model.

    Raises:
        RemitError: the provider is unknown or not set up, or has no default model and none is
            named. The error names the next step.
    """
    if provider_id in providers.reachable:
        if not model_id:
            raise RemitError(
                f"No model is named, and the provider {provider_id} has no default model.",
                next_step=f"Name a model, or set [providers.{provider_id}] default_model.",
            )
        return
    if provider_id == "local":
        how = "pull " + model_id if model_id in known_models() else "add FILE.gguf"
        raise RemitError(
            f"The local model {model_id} is not installed; no other provider is configured.",
            next_step=f"Run `remit model {how}`, or set ANTHROPIC_API_KEY, OPENAI_API_KEY or "
            "OPENAI_BASE_URL.",
        )
    provider = settings.providers.get(provider_id)
    variable = provider.api_key_env if provider else ""
    raise RemitError(
        f"The provider {provider_id} has neither an API key nor a base URL.",
        next_step=f"Set {variable or f'[providers.{provider_id}]'}.",
    )


def _is_elsewhere(name: str, settings: ProviderSettings) -> bool:
    """Return True if ``remit.toml`` gives a shipped provider another address."""
    shipped = default_settings().providers.get(name)
    return shipped is not None and settings.base_url != shipped.base_url


def is_own(name: str, settings: ProviderSettings) -> bool:
    """Return True if a provider is reached at the address to which the price table refers.

    False for a provider that Remit does not ship.

    Args:
        name: id of the provider.
        settings: its settings. The environment is read for its base URL.
    """
    shipped = default_settings().providers.get(name)
    return (
        shipped is not None
        and settings.base_url == shipped.base_url
        and not os.environ.get(settings.base_url_env)
    )
