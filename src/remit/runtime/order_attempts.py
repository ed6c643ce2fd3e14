"""An attempt at an order of kind ``turn`` or ``replay``, begun or continued from the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.agents.queue import Row, principal_of, subject_of
from remit.agents.sessions import SessionManager, latest_of
from remit.agents.supervisor import TurnCancelledError, TurnResult
from remit.kernel.errors import ConflictError, InvalidInputError, RemitError
from remit.ledger import Erased, LedgerClient, LedgerEntry, LedgerError
from remit.runtime.agent import Agent
from remit.runtime.agent_session import Conversation
from remit.runtime.replays import Replays, ReplayWanted, replay_report

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime

_RETRIED_CODES = frozenset({"SERVER_ERROR", "RATE_LIMITED", "CIRCUIT_OPEN"})
"""Failures after which another attempt is made. Others would recur, or may have cost money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of an attempt at an order.

    Immutable.

    Attributes:
        outcome: ``completed``, ``cancelled``, ``failed`` or ``waiting``.
        turn_entry_id: id of the recorded turn; empty if there is none.
        figures: numbers and ids that an order of another kind than ``turn`` produced, as JSON data.
        code: error code of a failure; empty otherwise.
        message: the failure in words; content.
        again: True if another attempt can help.
        new_session: True if that attempt needs a new session, because this session's turn ended.
        request_ids: ids of the requests that the order waits for; empty unless ``waiting``.
    """

    outcome: str
    turn_entry_id: str = ""
    figures: Mapping[str, Any] | None = None
    code: str = ""
    message: str = ""
    again: bool = False
    new_session: bool = False
    request_ids: tuple[str, ...] = ()


async def run_turn(runtime: Runtime, agents: Mapping[str, Agent[Any]], claim: Row) -> Done:
    """Execute an order as far as possible now, and return the result.

    An interrupted turn is resumed, and the session of an ended turn is ended. A turn that waits for
    people gives ``waiting`` with ``request_ids``. An order that must stop gives ``cancelled``; an
    erased task gives ``failed`` with code ``erased``, without ``again``. Either cancels an
    unfinished turn. The queue's row is unchanged. A raised error gives ``failed``, with ``again``
    unless the input is invalid. A turn that ended with a failure sets ``new_session``, and
    ``again`` only after a server error, a rate limit or an open circuit if no tool was begun.

    Args:
        runtime: the open root.
        agents: agents of the program, keyed by id; packages bring further ones.
        claim: the order, claimed by this worker.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    try:
        said = await asyncio.to_thread(runtime.orders.submission, claim.order_id)
        session = await asyncio.to_thread(_session, runtime, agents, claim, said)
        return await _continue(runtime, session, claim, said)
    except TurnCancelledError:
        return Done(outcome="cancelled")
    except InvalidInputError as error:
        return Done(outcome="failed", code="invalid_input", message=error.message)
    except LedgerError:
        raise
    except RemitError as error:
        return Done(outcome="failed", code=type(error).__name__, message=error.message, again=True)


async def _continue(
    runtime: Runtime, session: Conversation[Any], claim: Row, said: LedgerEntry
) -> Done:
    before = await asyncio.to_thread(session.unfinished)
    if claim.stop:
        if before is not None:
            await session.acancel()
        return Done(outcome="cancelled")
    task = said.metadata["task"]
    if isinstance(task, Erased) or (before is not None and before.erased):
        if before is not None:
            await session.acancel()
        return Done(outcome="failed", code="erased", message="The task was erased.")
    result: TurnResult[Any] | None = None
    if before is not None:
        result = await session.aresume()
    elif not session.turn_count:
        result = await session.aturn(task)
    if result is not None and result.waiting:
        waits = tuple(one.request_id for one in result.waiting_for)
        return Done(outcome="waiting", request_ids=waits)
    return await asyncio.to_thread(_ended, runtime.ledger, session, result)


def _ended(
    ledger: LedgerClient, session: Conversation[Any], result: TurnResult[Any] | None
) -> Done:
    """Return the result of an ended turn, from this or a dead process; end its session."""
    session_id = session.session_id
    turn = latest_of(ledger, session_id, "TURN_RECORDED")
    assert turn is not None  # It was recorded before its attempt ended.
    if latest_of(ledger, session_id, "SESSION_END") is None:
        session.end()
    if turn.metadata.get("outcome") == "cancelled":
        return Done(outcome="cancelled", turn_entry_id=turn.id)
    if result is not None:
        code, detail = result.error_code, result.error_detail
    else:
        turns = ledger.scoped(tier="ho2")
        reasons = SessionManager(turns, session_id, agent_id=session.agent_id).answer()[1]
        code, detail = ("answer_rejected", "; ".join(reasons)) if reasons else ("", "")
    if not code:
        return Done(outcome="completed", turn_entry_id=turn.id)
    # A tool may have taken effect: only a person may repeat that.
    used = ledger.query(session_id=session_id, event_type="TOOL_INTENT", limit=1)
    again = code in _RETRIED_CODES and not any(used)
    return Done(
        outcome="failed", turn_entry_id=turn.id, code=code, message=detail, again=again,
        new_session=True,
    )  # fmt: skip


def _session(
    runtime: Runtime, agents: Mapping[str, Agent[Any]], claim: Row, said: LedgerEntry
) -> Conversation[Any]:
    """Return the session of an order; raise NotFoundError if there is no such agent."""
    agent = agents.get(claim.agent_id) or runtime.packaged_agent(claim.agent_id)
    user_id, key_id = (said.metadata.get(name, "") for name in ("user_id", "key_id"))
    principal = principal_of(runtime.ledger, user_id, subject_of(said), key_id)
    return agent.keyed_session(
        claim.session_id, principal, said.metadata.get("tokens"), said.metadata.get("usd"),
        {"order_id": claim.order_id},
    )  # fmt: skip


_STATE = "SELECT worker, attempts, stop FROM orders WHERE order_id = ?"


def run_replay(runtime: Runtime, claim: Row) -> Done:
    """Execute an order until its replay is done or its budget is spent. Blocks.

    Models are called, and results are stored in the record. The order is checked before each
    exchange: if it must stop, or another worker has it, the result is ``cancelled``. A spent budget
    gives ``completed`` too, with ``ended`` ``budget`` in the figures. An erased task gives
    ``failed`` with code ``erased``. An invalid request, an unknown proposal and a conflict with an
    earlier run give ``failed`` with the name of the error's class in ``code``; none is tried again.

    Args:
        runtime: the open root.
        claim: the order, claimed by this worker.

    Returns:
        The result, with ``figures`` of :func:`~remit.runtime.replays.replay_report` if
        ``completed``.

    Raises:
        ContractError: the contract cannot be used.
        RemitError: the ledger or a provider cannot be used. After either error the order is tried
            again or fails.
    """
    said = runtime.orders.submission(claim.order_id).metadata
    task = said["task"]
    if isinstance(task, Erased):
        return Done(outcome="failed", code="erased", message="The task was erased.")

    def check(done: int, total: int) -> None:
        found = runtime.ledger.select(_STATE, (claim.order_id,))
        if found != [(claim.worker, claim.attempts, 0)]:
            raise InterruptedError

    try:
        wanted = ReplayWanted.of_task(json.loads(task))
        check(0, 0)
        replays = Replays(runtime, wanted, str(said["by"]))
        sides, cause = replays.run(check, order_id=claim.order_id)
    except InterruptedError:
        return Done(outcome="cancelled")
    except (InvalidInputError, ConflictError, json.JSONDecodeError) as error:
        message = error.message if isinstance(error, RemitError) else "The task is not JSON."
        return Done(outcome="failed", code=type(error).__name__, message=message)
    return Done(outcome="completed", figures=replay_report(sides, cause))
