"""Names of models: the models and fallbacks that a name means, and the port of routers."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Protocol

from remit.gateway.auth import Identity
from remit.gateway.config import RouterConfig
from remit.gateway.values import Call, Choice, Model
from remit.kernel.exchange import ModelCapabilities, PromptRequest

_BEFORE = re.compile(r"^[\W_]+")
_BETWEEN = re.compile(r"[.:/]")
_MAX_NAMES = 1024  # clients name models: what is remembered of them has an end


class Chooser(Protocol):
    """Chooses models for requests that name a route instead of a model.

    The gateway calls :meth:`knows` for each new name, and :meth:`choose` once for each call of a
    route.
    """

    def knows(self, name: str) -> bool:
        """Return True if ``name`` is a route."""
        ...

    def named(self, name: str) -> tuple[str, str] | None:
        """Return provider and model of a name in the registry; None for any other name."""
        ...

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """Return the capabilities of the models that may get ``request``."""
        ...

    async def choose(self, call: Call) -> Choice:
        """Return the models to ask for a call, and the facts to record about the choice.

        Nothing is sent. The gateway asks the models and tells the choice about each result.

        Args:
            call: the admitted call, whose request names a route. The request may be replaced.

        Raises:
            RefusedError, RemitError: the route cannot be used for the request.
        """
        ...


def resolve(
    config: RouterConfig, known: Container[str], provider_id: str | None, model_id: str | None
) -> tuple[str, str]:
    """Return the provider and the model that a request means.

    The provider need not be registered: a model that is known to be one provider's is never
    another's to answer. A name that is a default model means its provider, the gateway's default
    first. Next comes a provider in the name (:func:`split_name`), then the name's prefix, and last
    the default provider.

    Args:
        config: defaults and prefixes.
        known: ids of the registered providers. If two providers have the same default model, a
            registered one is meant.
        provider_id: the provider that the request names; None without one.
        model_id: the model that the request names; None for the default of the provider. A provider
            that the configuration does not know has the gateway's default model. The model is
            empty if the provider has no default.
    """
    if provider_id:
        fallback = config.default_models.get(provider_id, config.default_model)
        if provider_id == config.default_provider:
            fallback = config.default_model
        return provider_id, model_id or fallback
    if not model_id:
        return config.default_provider, config.default_model
    if model_id == config.default_model:
        return config.default_provider, model_id
    owners = [name for name, model in config.default_models.items() if model == model_id]
    if owners:
        return next((name for name in owners if name in known), owners[0]), model_id
    head, tail = split_name(model_id, known, config.set_up_by)
    if head:
        return head, tail or config.default_models.get(head, model_id)
    return owner_by_prefix(config.model_prefixes, model_id) or config.default_provider, model_id


def split_name(model_id: str, *providers: Container[str]) -> tuple[str, str]:
    """Return the provider that a name states, and the model after it; each empty without one.

    The text before ``/`` is always a provider, except in an ARN. The text before ``:``, or a name
    alone, is a provider only if its id is known, in any case: ``llama3:8b`` and ``ft:gpt-4o`` are
    models.

    Args:
        model_id: ``provider/model``, ``provider:model``, a provider or a model.
        providers: ids of the providers that are known, set up or not.
    """
    name = model_id.strip()
    head, _, tail = name.partition(":")
    for one in (head.rstrip("/"), _BEFORE.sub("", head.casefold()).rstrip("/")):
        if any(one in ids for ids in providers):
            return one, tail.strip()
    if _is_arn(name):
        return "", ""
    head, _, tail = name.partition("/")
    return (head, tail) if head and tail else ("", "")


def owner_by_prefix(prefixes: Mapping[str, str], model_id: str) -> str:
    """Return the provider whose prefix a model's name has, the longest first; empty without one.

    Case and characters before the first letter do not matter. If no prefix has the whole name, the
    text after each ``.``, ``:`` and ``/`` in it is tried in turn (``ft:gpt-4o``), and a provider
    before a ``.`` is meant itself (``us.anthropic.claude-3-v1:0``). An ARN of another family is a
    model of the service that the ARN names.

    Args:
        prefixes: the provider of each prefix of model names.
        model_id: the model's name.
    """
    name = _BEFORE.sub("", model_id.casefold())
    families = {provider.casefold(): provider for provider in prefixes.values()}
    for start in (0, *(between.end() for between in _BETWEEN.finditer(name))):
        tried = name[start:]
        found = [one for one in prefixes if tried.startswith(one.casefold())]
        if found:
            return prefixes[max(found, key=len)]
        family, dot, _ = tried.partition(".")
        if dot and family in families:
            return families[family]
    return name.split(":")[2] if _is_arn(name) else ""


def _is_arn(name: str) -> bool:
    """Return True for a name of a resource of AWS, such as a model of Bedrock."""
    return name[:4].casefold() == "arn:" and name.count(":") > 2


def candidates(
    config: RouterConfig, known: Container[str], provider_id: str | None, model_id: str | None
) -> Iterator[tuple[str, str]]:
    """Yield provider and model of the named model, then of its configured fallbacks.

    Fallbacks under the name that the request states come before those under ``provider/model``,
    which then do not count. The named model is not repeated among them.

    Args:
        config: defaults, prefixes and fallbacks.
        known: ids of the registered providers.
        provider_id: the provider that the request names; None without one.
        model_id: the model that the request names; None for the default.
    """
    first = resolve(config, known, provider_id, model_id)
    yield first
    named = config.fallbacks.get(model_id or first[1]) or config.fallbacks.get("/".join(first), ())
    for name in named:
        found = resolve(config, known, None, name)
        if found != first:
            yield found


class Names:
    """Model names, their candidates, and who may use them.

    Resolved names are cached, at most 1,024, until :meth:`forget`. Nothing is read from the
    database.

    Args:
        config: defaults, prefixes and fallbacks.
        known: ids of the registered providers; read again after :meth:`forget`.

    Attributes:
        router: the chooser that knows routes and the names in the registry; None without one.
    """

    def __init__(self, config: RouterConfig, known: Container[str]) -> None:
        self.router: Chooser | None = None
        self._config = config
        self._known = known
        self._found: dict[tuple[str | None, str | None], tuple[tuple[str, str], ...]] = {}
        self._choices: dict[tuple[str | None, str | None], Choice] = {}

    def forget(self) -> None:
        """Clear the cache after a provider or a router was registered."""
        self._found.clear()
        self._choices.clear()

    def not_set_up(self, provider_id: str, model_id: str) -> str:
        """Return how to set up the provider of a model; empty if the provider is registered.

        The text names the model and how to set up its provider.

        Args:
            provider_id: the provider.
            model_id: the model, for the message.
        """
        if provider_id in self._known:
            return ""
        how = self.how_to_set_up(provider_id)
        return f"{model_id} belongs to {provider_id}, which is not configured; {how}"

    def how_to_set_up(self, provider_id: str) -> str:
        """Return the variable, setting or command that sets a provider up."""
        unknown = f"add [providers.{provider_id}] to remit.toml"
        return self._config.set_up_by.get(provider_id, unknown)

    def router_of(self, request: PromptRequest) -> Chooser | None:
        """Return the chooser of a request that names a route; None for any other request.

        A request that names a provider, or no model, names no route.

        Args:
            request: the request.
        """
        router, name = self.router, request.model_id
        if router is None or not name or request.provider_id or (None, name) in self._choices:
            return None  # a name that was chosen before names no route
        if not router.knows(name):
            return None
        return router

    def choose(self, call: Call) -> Choice | Chooser:
        """Return the choice of the named model and its fallbacks; or the chooser of a named route.

        Models that the session has set aside are left out as long as another remains, and are added
        to ``call.passed_over``. Choices are cached by name, so a choice must not be changed.

        Args:
            call: the call.
        """
        request = call.request
        name = (request.provider_id, request.model_id)
        if name in self._choices:
            choice = self._choices[name]
        elif (router := self.router_of(request)) is not None:
            return router
        else:
            models = [Model(*one, one[1]) for one in self._named(*name)]
            choice = Choice(models, models[0].model_id, self._config.max_retries)
            if len(self._choices) < _MAX_NAMES:
                self._choices[name] = choice
        if request.set_aside:
            left = self.left(request)
            aside = [one for one in choice.models if one[:2] not in left]
            if aside:
                call.passed_over += tuple([(one.name, "SET_ASIDE") for one in aside])
                remaining = [one for one in choice.models if one[:2] in left]
                choice = Choice(remaining, choice.asked_model_id, choice.max_retries)
        return choice

    def candidates(self, request: PromptRequest) -> Sequence[tuple[str, str]]:
        """Return provider and model of each candidate of a request, in the order in which to ask.

        The first is the named model, by the registry or the settings; its fallbacks follow.

        Args:
            request: the request.
        """
        return self._named(request.provider_id, request.model_id)

    def _named(self, provider_id: str | None, model_id: str | None) -> Sequence[tuple[str, str]]:
        name = (provider_id, model_id)
        found = self._found.get(name)
        if found is None:
            named = list(candidates(self._config, self._known, *name))
            behind = self._behind(provider_id, model_id)  # the registry first
            if behind is not None:
                named[0] = behind
            found = tuple(dict.fromkeys(named))
            if len(self._found) < _MAX_NAMES:
                self._found[name] = found
        return found

    def left(self, request: PromptRequest) -> Sequence[tuple[str, str]]:
        """Return the candidates that the session has not set aside; all if none would remain.

        Args:
            request: the request, with the names in ``set_aside``.
        """
        named = self.candidates(request)
        aside = request.set_aside
        return [one for one in named if "/".join(one) not in aside] or named

    def next_best(self, provider_id: str, model_id: str) -> list[tuple[str, str]]:
        """Return the fallbacks of a model as provider and model, best first; empty without any.

        Fallbacks that are configured under any of its names count; each is returned once.

        Args:
            provider_id: the provider.
            model_id: the model.
        """
        asked = [(provider_id, model_id), *((None, name) for name in self._config.fallbacks)]
        each = (self._named(*name) for name in asked)
        found = [named[1:] for named in each if named[0] == (provider_id, model_id)]
        return list(dict.fromkeys(one for rest in found for one in rest))

    def leads_to(self, model_id: str) -> tuple[str, str]:
        """Return provider and model of a name; routes and the registry are ignored."""
        return resolve(self._config, self._known, None, model_id)

    def may_use(
        self,
        identity: Identity | None,
        request: PromptRequest,
        choice: Choice | None,
        model: Model,
    ) -> bool:
        """Return True if a caller's models include this one, under any name of it.

        The names are the model's id, ``provider/model``, and the request's own name for it. A key
        that names a route may use the models of the route.

        Args:
            identity: the caller; None may use all.
            request: the request.
            choice: the choice that names the model; None without one.
            model: the model.
        """
        if identity is None:
            return True
        provider_id, model_id = model.provider_id, model.model_id
        names = [model_id, f"{provider_id}/{model_id}"]
        asked = request.model_id
        if choice is not None and choice.is_routed:
            names += [choice.asked_model_id, model.name]
        elif asked is not None and (
            asked.endswith(model_id)
            or self._behind(request.provider_id, asked) == (provider_id, model_id)
        ):
            names.append(asked)
        return any(identity.may_use_model(name) for name in names if name)

    def _behind(self, provider_id: str | None, model_id: str | None) -> tuple[str, str] | None:
        """Return provider and model of a name in the registry; None if the request gives none."""
        if self.router is None or provider_id or not model_id:
            return None
        return self.router.named(model_id)
