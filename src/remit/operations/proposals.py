"""Operations that propose a change of the settings by the recorded exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.operations.operation import field, verb
from remit.operations.orders import by
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.learning.proposals import Kind


PROPOSED = "Proposed: `remit learn show {proposal_id}`, then `remit learn adopt`."
"""The note on the commands that follow a proposal."""


def proposal_reason() -> Any:
    """Declare the field with the reason of a proposal."""
    return field(
        "Reason of the proposal (recorded permanently).", least=1, most=1000, pattern=r"\S"
    )


def _proposed(
    root: RootPort, caller: Caller, kind: Kind, settings: dict[str, Any], why: str
) -> dict[str, Any]:
    """Record a proposal of learned settings with its case; return the proposal as JSON data.

    Raises:
        InvalidInputError: the change would have prevented no recorded exchange.
        ProposalError: the record does not show that the change helps.
    """
    from remit.learning import read_samples
    from remit.learning.proposals import Change, Learner, case_of

    models = root.settings.routing.models
    names = {name: one.served_as for name, one in models.items() if one.served_as}
    change = Change(kind, settings=settings)
    case = case_of(change, read_samples(root.ledger, with_tasks=True), names)
    learner = Learner(root.place, root.ledger, root.loaded, caller.identity)
    return learner.propose(change, reason=why, **case).to_dict()


@verb(
    "learn set-aside", "POST /learn/proposals/set-aside", summary="Propose to set models aside",
    tag="learning", needs="propose", form="SetAsideProposal", result="ProposalShape",
    endpoint="set_aside", fails=(409,), then=PROPOSED,
)  # fmt: skip
def propose_set_aside(
    root: RootPort, caller: Caller, *,
    models: list[str] = field("Models that routes skip.", flag="", metavar="MODEL..."),
    reason: str = proposal_reason(),
    by: str | None = by(),
) -> dict[str, Any]:  # fmt: skip
    """Propose to set models of routes aside, if the record shows that other models answer better.

    Returns:
        The recorded proposal, with these models and those that are set aside already. Nothing
        changes until a person adopts it.

    Raises:
        InvalidInputError: none of the models has a recorded exchange.
        ProposalError: the record does not show that the change helps.
        PackageError: another operation on packages is running, or the archive cannot be written.
        LedgerError: the ledger cannot be read or written.
    """
    aside = sorted({*root.settings.routing.set_aside, *models})
    return _proposed(root, caller, "set_aside", {"routing": {"set_aside": aside}}, reason)


@verb(
    "learn tools", "POST /learn/proposals/tools", summary="Propose which tools are allowed",
    tag="learning", needs="propose", form="ToolsProposal", result="ProposalShape",
    endpoint="tools", fails=(409,), then=PROPOSED,
)  # fmt: skip
def propose_tools(
    root: RootPort, caller: Caller, *,
    allowed: list[str] = field("All tools that stay allowed.", flag="", metavar="TOOL..."),
    reason: str = proposal_reason(),
    by: str | None = by(),
) -> dict[str, Any]:  # fmt: skip
    """Propose the tools of conversations, if the record shows that calls of other tools do worse.

    Returns:
        The recorded proposal, whose tools replace all allowed ones. Nothing changes until a person
        adopts it.

    Raises:
        InvalidInputError: no recorded exchange called another tool.
        ProposalError: the record does not show that the change helps.
        PackageError: another operation on packages is running, or the archive cannot be written.
        LedgerError: the ledger cannot be read or written.
    """
    settings = {"chat": {"tools_allowed": sorted(set(allowed))}}
    return _proposed(root, caller, "tool_permission", settings, reason)


@verb(
    "learn limit", "POST /learn/proposals/limit", summary="Propose lower limits", tag="learning",
    needs="propose", form="LimitProposal", result="ProposalShape", endpoint="limit", fails=(409,),
    then=PROPOSED,
)  # fmt: skip
def propose_limit(
    root: RootPort, caller: Caller, *,
    session_tokens: int | None = field("Token limit of a session.", None, least=1),
    session_turns: int | None = field("Limit of the turns of a session.", None, least=1),
    work_order_tokens: int | None = field("Token limit of a work order.", None, least=1),
    reason: str = proposal_reason(),
    by: str | None = by(),
) -> dict[str, Any]:  # fmt: skip
    """Propose limits of sessions and work orders, if records show that calls above them do worse.

    Returns:
        The recorded proposal of the given limits. Nothing changes until a person adopts it.

    Raises:
        InvalidInputError: no limit is given, or no recorded exchange is beyond one.
        ProposalError: the record does not show that the change helps.
        PackageError: another operation on packages is running, or the archive cannot be written.
        LedgerError: the ledger cannot be read or written.
    """
    given = {"session_tokens": session_tokens, "session_turns": session_turns,
             "work_order_tokens": work_order_tokens}  # fmt: skip
    limits = {name: most for name, most in given.items() if most is not None}
    if not limits:
        raise InvalidInputError("A proposal of limits needs at least one limit.")
    return _proposed(root, caller, "budget", {"budget": limits}, reason)
