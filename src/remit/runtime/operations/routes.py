"""Operations that explain routing: decisions, scores, and the state of the router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.operations import (
    AgentTool,
    Caller,
    Note,
    RootPort,
    Table,
    ToolCall,
    argument,
    facts,
    field,
    session_argument,
    table_of,
    verb,
)
from remit.operations.files import io_errors

_MAX_NAME = 128
_DECISION = "DEC-… | LED-…"


def _explain_route_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the sentences of the call and the decision, and the table of the candidates."""
    call = found.get("call")
    if call is not None:
        yield f"{call['entry_id']} ({call['event_type']}, {call['timestamp']})"
        yield from (f"  {sentence}" for sentence in call["why"])
        if not found["decision_id"]:
            return
        yield ""
    yield f"{found['decision_id']} ({found['entry_id']}, {found['timestamp']})"
    yield from (f"  {sentence}" for sentence in found["why"])
    candidates = found["candidates"]
    if not candidates:
        return
    yield ""
    parts = sorted({name for one in candidates for name in one.get("parts", ())})
    heads = ("", "model", "score", *parts, "result", "")
    yield Table(heads, [_candidate(one, parts) for one in candidates], indent=2)
    yield from (
        "",
        f"  rules {found['rule_version_hash']}",
        f"  hash  {found['decision_hash']}",
    )
    yield Note("`remit route replay` recomputes the decision.")


def _requested(call: ToolCall) -> dict[str, Any]:
    """Return the named entry, or the last call of the session.

    Raises:
        NotFoundError: the session has no call.
        ToolError: neither an entry nor a session is given outside of a session.
    """
    from remit.agents import caller_session

    if entry_id := call.given["entry_id"]:
        return {"decision": entry_id}
    session_id = caller_session(call.given["session_id"])
    for entry in call.root.ledger.query(
        event_type="EXCHANGE", session_id=session_id, order="desc", limit=1, with_content=False
    ):
        return {"decision": entry.id}
    raise NotFoundError("There is no call in that session; name an entry_id.")


def _say(output: dict[str, Any]) -> str:
    """Return the sentences on the call; without a call, those on the decision."""
    return " ".join(map(str, (output.get("call") or output)["why"]))


_TOOL = AgentTool(
    name="explain_route", label="why", request=_requested,
    about="Explain why a model answered a call: by which name it was asked for, which models were "
    "passed over, what was changed, what it cost. With nothing named, the last call.",
    arguments={
        "entry_id": argument("any entry of the call, or of a routing decision",
                             pattern="^LED-[0-9a-f]{8,}$"),
        "session_id": session_argument("the last call of this session; this session when left out"),
    },
    examples=(
        "why did this model answer?", "why did you choose this model?",
        "which model or LLM was used for the last answer?",
        "who or what decided which model answers?",
        "why was that picked and not another, smaller one?", "why not a bigger model?",
        ("explain the routing of LED-0000002a", {"entry_id": "LED-0000002a"}),
        ("the routing decision behind LED-00000007", {"entry_id": "LED-00000007"}),
        "which model was passed over, and why?",
        ("why was that model chosen in SES-7K2M4QX9?", {"session_id": "SES-7K2M4QX9"}),
    ),
    describe=_say,
)  # fmt: skip


_NAMES = {
    "decision_id": "of the decision",
    "decision_entry_id": "the decision's entry in the ledger",
    "exchange_entry_id": "the entry of the call, or any EXCHANGE, DISPATCH or PROMPT_REJECTED",
    "decision": "any of these ids",
}


def _named(call: ToolCall) -> dict[str, Any]:
    """Return the request for the first id that is named.

    Raises:
        InvalidInputError: no id is named.
    """
    if named := next(filter(None, map(call.given.__getitem__, _NAMES)), ""):
        return {"decision": named}
    raise InvalidInputError(
        "No decision was named.", next_step="Pass the decision_id that router_route returned."
    )


_CLIENTS_TOOL = AgentTool(
    name="router_explain", title="Why a model was chosen", has_status=False, request=_named,
    about="Explain a routing decision, or any recorded model call: what was asked for, "
    "which models were scored, skipped or failed and why, who answered, and of a call what was "
    "changed of its body, what it could cost and did cost. Name one id, as router_route gave it. "
    "Keys and passwords in it are hidden.",
    arguments={name: argument(text, "", most=_MAX_NAME, examples=(
        "DEC-0123456789abcdef0123456789abcdef", "LED-0000002a",
    )) for name, text in _NAMES.items()},
)  # fmt: skip


@verb("route explain", lines=_explain_route_lines, agent_tools=(_TOOL, _CLIENTS_TOOL))
def explain_route(
    root: RootPort, caller: Caller, *,
    decision: str = field("Id of the decision or entry.", flag="", metavar=_DECISION),
) -> dict[str, Any]:  # fmt: skip
    """Explain a call: the requested name, models tried and skipped, changes and cost.

    ID is a decision, its ledger entry, or any entry of a call: EXCHANGE, DISPATCH,
    EXCHANGE_ORPHANED or PROMPT_REJECTED.

    Returns:
        The decision with its ``candidates`` and ``why`` (sentences), and ``call`` if the id is that
        of an entry of a call. If no router chose the model, ``decision_id`` and ``candidates`` are
        empty, and ``why`` explains the call.

    Raises:
        NotFoundError: the ledger has no such decision or call.
        LedgerError: the entry is archived.
    """
    from remit.routing import explain

    return explain(root.ledger, decision, root.settings.model.prefixes)


def _replay_decision_has_failed(found: dict[str, Any]) -> bool:
    """Return True if a value differs from the recorded one."""
    return not (found["agrees"] or _is_erased(found))


def _replay_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the verdict in a sentence, then the results by part."""
    verdict = ("agrees with the record" if found["agrees"] else "cannot be recomputed"
               if _is_erased(found) else "does NOT agree with the record")  # fmt: skip
    gone = "; content was erased" if found["erased"] else ""
    yield f"The decision {found['decision_id']} ({found['entry_id']}) {verdict}{gone}."
    yield from facts(found, "agrees", "erased", "decision_id", "entry_id")


@verb("route replay", lines=_replay_lines, has_failed=_replay_decision_has_failed)
def replay_decision(
    root: RootPort, caller: Caller, *,
    decision: str = field("Id of the decision or its entry.", flag="", metavar=_DECISION),
) -> dict[str, Any]:  # fmt: skip
    """Recompute a decision's scores and hashes from the record. Exit 1 on a mismatch.

    If content of the decision was erased, the remaining parts are compared.

    Returns:
        ``agrees``, ``erased``, ``decision_id``, ``entry_id``, ``checks`` (True, False or None by
        part), ``recorded`` and ``recomputed`` (values that differ), and ``notes``.

    Raises:
        NotFoundError: the ledger has no such decision.
    """
    from remit.routing import find_decision, replay

    return replay(find_decision(root.ledger, decision), root.ledger)


@verb("route evaluate", changes=True, prints="{statement}")
def evaluate_route(
    root: RootPort, caller: Caller, *,
    prompts: Path = field("Prompts as JSON lines.", flag="", place="input"),
    registration: Path = field("Record the choices, and write the registration to this file.",
                               flag="--register", metavar="OUT"),
    route_name: str = field("Route that chooses.", "auto", flag="--route"),
    witnesses: list[tuple[str, str]] = field(
        "Request a cosignature of this witness. Repeat for several witnesses.",
        flag="--witness", metavar="URL VKEY",
    ),
) -> dict[str, Any]:  # fmt: skip
    """Register which model a route chooses for each prompt, before the answers are known.

    PROMPTS is JSON Lines with id, prompt and optionally task, and no answers. The ledger records
    the choices with the hashes of the code and the rules, and each witness confirms the time.
    Nothing is sent to a model. `remit ledger verify --file OUT` checks the registration. An
    existing file OUT is replaced.

    Returns:
        ``statement``, a sentence on the registered choices. The ledger records
        EVALUATION_REGISTERED.

    Raises:
        InvalidInputError: a line is not a prompt, repeats an id or may have answers; there are no
            prompts; both files are one; or a witness's URL cannot be used.
        NotFoundError: there is no such route.
        TlogError: the key of a witness cannot be parsed.
        LedgerError: the ledger cannot be read or written.
        WitnessError: a witness refuses or does not answer. After this error, the next one and that
            of a URL, the choices and earlier cosignatures are recorded, and OUT is unchanged.
        RemitError: the file cannot be written.
    """
    from remit.kernel.canonical import canonical_json, sha256_hex
    from remit.kernel.durable_files import replacing
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey
    from remit.operations.checkpoints import cosigned
    from remit.packages.distribution import Distribution
    from remit.routing import read_registration, register_choices
    from remit.runtime.runtime import Runtime

    if registration.resolve() == prompts.resolve():
        raise InvalidInputError("The registration would replace the file of the prompts.")
    keys = [(url, VerifierKey.parse(text)) for url, text in witnesses]
    modules = Distribution.current().modules().items()
    code = sha256_hex(
        canonical_json({name: sha256_hex(file.read_bytes()) for name, file in modules})
    )
    with Runtime.open(root.path, by=caller.name) as runtime, prompts.open("rb") as lines:
        router, ledger = runtime.router, runtime.ledger
        rules = router.rules.version_hash
        facts = {"route": route_name, "code": f"sha256:{code}", "rules": rules}

        def choose(prompt: str, task: str) -> str:
            return str(router.score_text(prompt, route=route_name, task=task)["winner"])

        found = register_choices(ledger, choose, lines, facts)
        signed = SignedCheckpoint.parse(found["checkpoint"])
        found["checkpoint"] = str(cosigned(ledger, signed, keys))
    data = canonical_json(found)
    read = read_registration(data, None, [key for _, key in keys])
    with io_errors(registration, "written"), replacing(registration) as file:
        file.write(data + b"\n")
    return {"statement": read.statement}


_STATUS_TOOL = AgentTool(
    name="router_status", title="The router's state", has_status=False,
    about="See how the router is: its rules' hash, its routes and preferences, the models it can "
    "choose from, and which of them cannot be asked just now. Use it when routing surprises, or to "
    "learn the names that route and operator_preference take.",
)  # fmt: skip


def _status_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    yield from facts(found, "models")
    # The circuit of a model that cannot be reached says nothing.
    rows = [{
        **one, "context": one["context_tokens"] or None, "tokens/s": one["tokens_per_s"] or None,
        "reliability": f"{one['reliability']}%",
        "circuit": one["circuit"] if one["reachable"] else None,
    } for one in found["models"]]  # fmt: skip
    yield table_of(rows, "model_id", "provider_id", "context", "tokens/s", "reliability",
                   "reachable", "circuit")  # fmt: skip


@verb("route status", agent_tools=(_STATUS_TOOL,), lines=_status_lines)
def router_status(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Show routes, models with their properties, and open circuits.

    Returns:
        ``rule_version_hash``, ``rules_file``, ``model_timeout_s``, ``preferences``, ``routes`` and
        ``models``.
    """
    return root.router(caller).status()


def _scored(call: ToolCall) -> dict[str, Any]:
    names = {"route": "route_name", "operator_preference": "prefer"}
    return {names.get(name, name): value for name, value in call.given.items()}


_SCORE_TOOL = AgentTool(
    name="router_score", title="Which model would answer", has_status=False, request=_scored,
    about="See which model the router would choose for a prompt, and why, without asking any: no "
    "cost, nothing recorded. Returns the winner, the scores of all candidates, the chain of "
    "fallbacks, the intent that was read from the prompt, and the hash of the rules.",
    arguments={
        "prompt": argument("the full prompt", MISSING, least=1,
                           examples=("Summarize RFC 6962 in three sentences.",)),
        "route": argument("Route: auto, or another route of router_status.", "auto", least=1,
                          most=_MAX_NAME, examples=("auto",)),
        "task": argument("Kind of the task; by default the router detects it from the prompt.", "",
                         most=_MAX_NAME, examples=("code",)),
        "operator_preference": argument("Preference of the choice, from router_status.", "",
                                        most=_MAX_NAME, examples=("cost",)),
    },
    returns={
        "winner": {"description": "the model that would be asked first"},
        "scores": {"description": "of all candidates"},
        "chain": {"description": "who would be asked in turn"},
        "intent": {"description": "what the prompt was taken for"},
        "rule_version_hash": {"description": "of the rules that decided"},
    },
)  # fmt: skip


@verb("route score", needs="call or read", agent_tools=(_SCORE_TOOL,))
def score_prompt(
    root: RootPort, caller: Caller, *,
    prompt: str = field("The prompt.", flag=""),
    route_name: str = field("Route to score.", "auto", flag="--route"),
    task: str = field("Task type to assume (default: detected from the prompt).", ""),
    prefer: str = field("An operator preference: quality, cost, speed, ….", "",
                        flag_help="An operator preference: quality, cost, speed, …"),
) -> dict[str, Any]:  # fmt: skip
    """Show how a route would score its models for a prompt. Nothing is sent or recorded.

    Returns:
        ``winner``, ``scores`` by model, ``chain`` (models, best first), ``intent`` and
        ``rule_version_hash``.

    Raises:
        NotFoundError: no such route exists.
        InvalidInputError: the preference is unknown, the task is not a name, or the key may use no
            model of the route.
    """
    return root.router(caller).score_text(
        prompt, route=route_name, task=task, operator_preference=prefer,
        identity=None if caller.is_local else caller.identity,
    )  # fmt: skip


def _is_erased(found: Mapping[str, Any]) -> bool:
    """Return True if something was erased and all other parts agree."""
    return found["erased"] and False not in found["checks"].values()


def _candidate(one: Mapping[str, Any], parts: list[str]) -> tuple[str, ...]:
    """Return the cells of a candidate, with its points for each part of the score."""
    from remit.views.wording import words_of

    points = [f"{one.get('parts', {}).get(name, 0):.3f}" for name in parts]
    reasons = " ".join(str(one[key]) for key in ("code", "exchange_entry_id") if one[key])
    return (str(one["rank"]), one["model_id"], f"{one['score']:.6f}", *points,
            words_of(one["status"]), reasons)  # fmt: skip
