"""The router of a root: routes, rules and candidates.

:meth:`Router.choose` takes the steps in order: translate the request to neutral form if needed,
restrict the candidates to the caller's models, then hand both to :mod:`remit.routing.route`, which
ranks the candidates. The gateway asks them and records the decision that the choice states.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from remit.gateway import Call, LLMGateway, Refusal, RefusedError, in_neutral_form
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError, NotFoundError, RemitError
from remit.kernel.exchange import ModelCapabilities, PromptRequest
from remit.kernel.settings import RouteSettings, RoutingSettings
from remit.ledger import LedgerClient
from remit.routing.canary import Canary, canary_in_force
from remit.routing.candidate import Candidate
from remit.routing.candidate_order import rank
from remit.routing.choice import RouteChoice
from remit.routing.emitters import ThoughtRecordEmitter
from remit.routing.exploration import Exploration
from remit.routing.intent import read_intent
from remit.routing.learned_head import append_head
from remit.routing.model_registry import Registry, read_routes
from remit.routing.options import EnsembleOptions, RouteOptions, Stage, model_timeout_s
from remit.routing.request import Asked, asked_of, asked_plainly, new_request
from remit.routing.route import choose as choose_for, route as route_asked
from remit.routing.scores import ScoringFn, ScoringInputs, score_candidates, task_of
from remit.routing.spend_controller import Spend
from remit.routing.stage_requests import StagePrompts
from remit.routing.status import models_status, route_status
from remit.routing.weights import Rules

_AUTO = "auto"
_log = logging.getLogger("remit.routing")


class Router:
    """The chooser of models for requests that name a route.

    Args:
        gateway: states providers, prices and circuits, and makes calls for texts.
        ledger: records decisions.
        settings: routes and limits.
        registry: the models.
        rules: the scoring rules in force.
        prompts: makes the requests of stages and judges.

    Attributes:
        rules: the scoring rules in force.
        routes: the routes, keyed by name.
        scoring_fn: the scoring function.

    Raises:
        ConfigError: a route cannot be used.
    """

    def __init__(
        self,
        gateway: LLMGateway,
        ledger: LedgerClient,
        settings: RoutingSettings,
        registry: Registry,
        rules: Rules,
        prompts: StagePrompts,
    ) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._settings = settings
        self._registry = registry
        self._exploration = Exploration(ledger, settings.exploration)
        self._spend = Spend(ledger)
        terms = canary_in_force(ledger)
        self._canary = None if terms is None else Canary(ledger, terms)
        self._prompts = prompts
        self.rules = rules
        self.routes: Mapping[str, RouteSettings] = read_routes(settings, registry, rules, prompts)
        self.scoring_fn: ScoringFn = score_candidates
        self._kept = ""
        self._made_options: dict[str, RouteOptions] = {}
        self._timeout_s = model_timeout_s(default=settings.model_timeout_s)

    def knows(self, name: str) -> bool:
        """Return True if ``name`` is a route."""
        return name in self.routes

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """Return the capabilities that any model of the route has; ``prose`` only if all have it.

        Models of unregistered providers do not count, nor those set aside by the session, if others
        remain. Without a model the defaults are returned. A model without a needed capability is
        skipped in the call.

        Raises:
            NotFoundError: the route does not exist.
        """
        candidates = [
            candidate
            for candidate in _left(self.candidates(request.model_id or _AUTO), request.set_aside)
            if candidate.provider_id in self._gateway.providers
        ]
        each = [
            self._gateway.capabilities(
                replace(
                    request, provider_id=candidate.provider_id, model_id=candidate.provider_model
                )
            )
            for candidate in candidates
        ]
        if not each:
            return ModelCapabilities()
        return ModelCapabilities(
            native_tools=any(model.native_tools for model in each),
            structured_output=any(model.structured_output for model in each),
            prose=all(model.prose for model in each),  # any of them may be the one that answers
            images=any(candidate.images for candidate in candidates),
        )

    async def choose(self, call: Call) -> RouteChoice:
        """Return the models of the route that a call names, best first. Sends nothing.

        Args:
            call: the admitted call. Its request is replaced by the one for the models.

        Raises:
            RefusedError: the route cannot serve the request, or the key may use no model of it.
            NotFoundError: the route does not exist.
            CannotContinueError: the conversation that the request continues is gone.
            DialectError: the neutral form cannot express the body.
            InvalidInputError: the prompt cannot be sent or recorded.
            RoutingError: the scoring function failed.
            LedgerError: the spend of a learned route, a canary or an exploring route cannot be read
                from the ledger.
        """
        request, identity = call.request, call.identity
        name = request.model_id or _AUTO
        asked: Asked | None = None
        mode = self._route(name).mode
        if request.body is not None and mode == "single":
            asked = asked_plainly(request)
        if request.body is not None and asked is None:
            keeper, whole = request.keeper, request
            if keeper is not None:  # The earlier turns of the conversation count too.
                body = await keeper.body_for("", speaks=False, window=None)
                whole = replace(request, body=body)
            neutral = in_neutral_form(whole)
            if mode == "single":  # the body is sent as it is; this is for scoring
                neutral = replace(request, messages=neutral.messages, tools=neutral.tools)
            elif keeper is not None:  # the answer is no single exchange's: no id can lead to it
                if keeper.polled:
                    message = "only a route of the mode 'single' runs in the background"
                    raise RefusedError(Refusal("INVALID_INPUT", message))
                neutral = replace(neutral, keeper=None)
            request = neutral
        if request.idempotency_key and mode == "ensemble":
            message = "answers of an ensemble cannot be stored under an idempotency key; send none"
            raise RefusedError(Refusal("INVALID_INPUT", message))
        allowed = self._allowed(name, identity)
        if not allowed:
            message = f"this key may not use any model of the route {name!r}"
            raise RefusedError(Refusal("MODEL_NOT_ALLOWED", message))
        if asked is None:
            prompt = request.prompt if request.messages is None else request.messages
            asked = asked_of(prompt, request)
        asked.emitter, asked.identity = self._emitter(request, identity), identity
        asked.on_text = call.tap.on_text
        if self.rules.weights.head is not None:
            await self._prepare(asked)
        call.request = asked.request
        if request.set_aside:
            allowed = _left(allowed, request.set_aside)
        return await choose_for(asked, self._options(name, allowed))

    async def aroute_text(
        self,
        prompt: str,
        *,
        route: str = _AUTO,
        task: str = "",
        operator_preference: str = "",
        session_id: str = "",
        agent_id: str = "",
        max_tokens: int | None = None,
        identity: Identity | None = None,
        subject_id: str = "",
    ) -> dict[str, Any]:
        """Answer a text through a route, record the decision, and return the result as JSON.

        Args:
            prompt: the text.
            route: the route.
            task: the task, instead of the route's; empty for the route's.
            operator_preference: the preference, instead of the route's; empty for the route's.
            session_id: the session; empty for a new one.
            agent_id: the agent.
            max_tokens: output limit; None for 4,096.
            identity: the caller; only its models are candidates. None for all models.
            subject_id: the person of whom the prompt speaks; empty for nobody.

        Returns:
            ``model_id``, ``provider_id``, ``response`` (the text), ``finish_reason``, ``scores``,
            ``fallback_attempts``, ``latency_ms``, ``cost_usd``, ``decision_id``, the ids of the
            entries of decision and exchange, and ``session_id``.

        Raises:
            FallbackChainExhaustedError: no model answered.
            RoutingError: the scoring function failed.
            NotFoundError: the route does not exist.
            InvalidInputError: an argument cannot be used, or the key may use no model of the route.
            LedgerError: the ledger cannot be read, or a call could not be recorded.
        """
        request = new_request(
            agent_id, session_id, model_id=route, max_tokens=max_tokens or 4096,
            subject_id=subject_id or None,
        )  # fmt: skip
        allowed = self._require_allowed(route, identity)
        options = self._options(route, allowed)
        if task or operator_preference:
            options = replace(
                options,
                task=task or options.task,
                operator_preference=operator_preference or options.operator_preference,
            )
        asked = asked_of(prompt, request)
        asked.emitter, asked.identity = self._emitter(request, identity), identity
        await self._prepare(asked)
        result, choice = await route_asked(asked, options)
        response = result.response
        return {
            "model_id": result.model_id,
            "provider_id": response.provider_id,
            "response": response.content,
            "finish_reason": response.finish_reason,
            "scores": dict(result.scores),
            "fallback_attempts": result.fallback_attempts,
            "latency_ms": result.latency_ms,
            "cost_usd": result.cost_usd,
            "decision_id": result.decision_id,
            "decision_entry_id": choice.entry_id,
            "exchange_entry_id": response.exchange_entry_id,
            "session_id": request.session_id,
        }

    def named(self, name: str) -> tuple[str, str] | None:
        """Return provider and model of a name in the registry; None for any other name."""
        found = self._registry.of(name)
        return None if found is None else (found.provider_id, found.provider_model)

    def may_use(self, name: str, identity: Identity) -> bool:
        """Return True if a key may use a route: by its name, or any model of it.

        Raises:
            NotFoundError: the route does not exist.
        """
        return bool(self._allowed(name, identity))

    def score_text(
        self,
        prompt: str,
        *,
        route: str = _AUTO,
        task: str = "",
        operator_preference: str = "",
        identity: Identity | None = None,
    ) -> dict[str, Any]:
        """Return how a route would score its candidates for a text; nothing is sent or recorded.

        Spending, warm prompt caches, exploration and a canary are not considered.

        Args:
            prompt: the text.
            route: the route.
            task: the task, instead of the route's; empty for the route's.
            operator_preference: the preference, instead of the route's; empty for the route's.
            identity: the caller; only its models are candidates. None for all models.

        Returns:
            ``winner``, ``scores``, ``chain`` (best first), ``intent`` and ``rule_version_hash``.

        Raises:
            NotFoundError: the route does not exist.
            InvalidInputError: an argument cannot be used, or the key may use no model.
        """
        known = self._route(route)
        allowed = self._require_allowed(route, identity)
        weights = self.rules.weights
        inputs = ScoringInputs(
            prompt,
            task_of(task or known.task),
            operator_preference or known.operator_preference,
            allowed,
            weights,
        )
        ranking = rank(inputs, self.scoring_fn)
        return {
            "winner": ranking.chain[0].model_id,
            "scores": dict(ranking.scores),
            "chain": [candidate.model_id for candidate in ranking.chain],
            "intent": asdict(read_intent(prompt, weights)),
            "rule_version_hash": self.rules.version_hash,
        }

    def status(self) -> dict[str, Any]:
        """Return routes, models and their current availability as JSON.

        The keys are ``rule_version_hash``, ``rules_file``, ``model_timeout_s``, ``preferences``,
        ``routes`` and ``models``. Reads the database, so it blocks.
        """
        return {
            "rule_version_hash": self.rules.version_hash,
            "rules_file": self._settings.rules,
            "model_timeout_s": self._timeout_s,
            "preferences": sorted(self.rules.weights.preferences),
            "routes": [
                route_status(name, route, self.candidates(name), self.rules.weights)
                for name, route in self.routes.items()
            ],
            "models": models_status(self._registry, self._gateway),
        }

    # -- what a route means ------------------------------------------------------------------

    def _route(self, name: str) -> RouteSettings:
        route = self.routes.get(name)
        if route is None:
            raise NotFoundError(
                f"The route {name!r} does not exist.",
                next_step=f"Known routes: {', '.join(sorted(self.routes))}.",
            )
        return route

    def candidates(self, name: str) -> tuple[Candidate, ...]:
        """Return the current candidates of a route, in the order of its models.

        Raises:
            NotFoundError: the route does not exist.
        """
        return self._registry.candidates(self._route(name).models)

    def _allowed(self, name: str, identity: Identity | None) -> Sequence[Candidate]:
        """Return the candidates of a route that a key may use; all if the key names the route."""
        candidates = self.candidates(name)
        if identity is None or (not identity.models and identity.within is None):
            return candidates
        if identity.may_use_model(name):
            return candidates
        return _one_object(
            tuple(
                candidate
                for candidate in candidates
                if identity.may_use_model(candidate.model_id)
                or identity.may_use_model(candidate.provider_model)
                or identity.may_use_model(f"{candidate.provider_id}/{candidate.provider_model}")
            )
        )

    def _require_allowed(self, name: str, identity: Identity | None) -> Sequence[Candidate]:
        allowed = self._allowed(name, identity)
        if not allowed:
            raise InvalidInputError(f"This key may not use any model of the route {name!r}.")
        return allowed

    async def _prepare(self, asked: Asked) -> None:
        """Read the spend and the session's warm prompt cache for a learned head.

        The head is recorded before the first decision made with it.
        """
        head = self.rules.weights.head
        if head is None:
            return
        asked.balance_nano = await self._spend.balance(self.rules.weights.learned)
        warm = self._spend.warm_cache(asked.request.session_id)
        asked.warm_nano = self._registry.warm_nano(*warm)
        if self._kept != head.digest:
            self._kept = head.digest
            try:
                await self._ledger.submit(lambda tx: append_head(tx, self._ledger, head))
            except RemitError as error:  # The call itself fails if the ledger cannot be written.
                _log.warning("the learned head could not be recorded: %s", error.message)

    def _emitter(self, request: PromptRequest, identity: Identity | None) -> ThoughtRecordEmitter:
        agent_id = request.agent_id or "router"
        return ThoughtRecordEmitter(self._ledger, _task_of(request, identity), agent_id)

    def _options(self, name: str, allowed: Sequence[Candidate]) -> RouteOptions:
        """Return the options that all requests of a route share; cached per set of candidates."""
        known = self._made_options.get(name)
        if (
            known is None
            or known.candidates is not allowed
            or known.rules is not self.rules
            or known.scoring_fn is not self.scoring_fn
        ):
            known = self._made_options[name] = self._fixed_options(name, allowed)
        return known

    def _fixed_options(self, name: str, allowed: Sequence[Candidate]) -> RouteOptions:
        route, candidates = self._route(name), self._registry.candidates
        return RouteOptions(
            gateway=self._gateway,
            candidates=allowed,
            rules=self.rules,
            scoring_fn=self.scoring_fn,
            model_timeout_s=self._timeout_s,
            emitter_timeout_s=self._settings.emitter_timeout_s,
            prompts=self._prompts,
            exploration=self._exploration if self._settings.exploration.share else None,
            canary=self._canary,
            route=name,
            mode=route.mode,
            task=route.task,
            operator_preference=route.operator_preference,
            ensemble=EnsembleOptions(
                size=route.size,
                join=route.join,
                judge=candidates(route.judge) if route.judge else (),
                timeout_s=route.timeout_s,
                max_usd=route.max_usd,
            ),
            stages=tuple(
                Stage(
                    stage.name,
                    stage.contract,
                    candidates(stage.models) if stage.models else (),
                    stage.revises,
                )
                for stage in route.stages
            ),
        )


@functools.lru_cache(maxsize=64)
def _one_object(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return the same object for equal candidates, because scores are cached by identity."""
    return candidates


def _left(candidates: Sequence[Candidate], aside: Sequence[str]) -> Sequence[Candidate]:
    """Return the candidates that the session has not set aside; all if none would remain."""
    if not aside:
        return candidates
    names = ((one, f"{one.provider_id}/{one.provider_model}") for one in candidates)
    return _one_object(tuple(one for one, name in names if name not in aside)) or candidates


def _task_of(request: PromptRequest, identity: Identity | None) -> str:
    """Return the task whose chain gets the decision: the work order, else the session.

    An agent's key may only name work orders of its own session; other orders are ignored.
    """
    order = request.work_order_id or ""
    own = order.startswith(f"WO-{request.session_id}-")
    held = identity is not None and identity.role == "agent"
    return order if order and (own or not held) else request.session_id
