"""The forms of requests: URL queries and bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from remit.gateway import MAX_ID_CHARS
from remit.operations.results import Flag, Page, Printable

_MAX_REASON = 2000


GateName = Literal["G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6"]
_Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS), Printable]
# A URL has no null: a value is given or left out.
_Text = Annotated[str | None, WithJsonSchema({"type": "string"})]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ApprovalQuery(Page):
    """Conditions on requests for approval.

    `state` selects requests: pending ones by default, `all` for every one.
    """

    state: Literal["pending", "granted", "denied", "void", "all"] = Field(
        "pending",
        description="State of the requests; `void` means that the order ended before a decision.",
    )


class Acceptance(_Body):
    """A person's acceptance of a changed tool.

    `digest` identifies the definition that the person has seen.
    """

    digest: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the changed definition, in hex, as in `change.digest`.",
    )


class Decision(_Body):
    """A person's decision on a request.

    `grant` decides, `reason` explains, `arguments` replaces the arguments, and `until` ends an
    approval.
    """

    grant: bool = Field(description="True to let the tool run, false to deny it.")
    reason: str = Field(
        "",
        max_length=_MAX_REASON,
        description="Reason, recorded permanently; the model sees the reason of a denial.",
    )
    arguments: dict[str, Any] | None = Field(
        None,
        description="Arguments to run the tool with instead of the requested ones, valid under the "
        "tool's schema.",
    )
    until: str = Field(
        "",
        max_length=64,
        description="End of the approval if it is not used: a duration such as `2h`, or a time. "
        "By default `[approvals] valid_s` applies.",
    )


class Delegation(_Body):
    """A person who may approve in the caller's place, and for how long.

    `to` is the delegate, `until` the end, and `reason` is recorded.
    """

    to: _Name = Field(description="User id or key id of the delegate.")
    until: str = Field(
        max_length=64,
        description="End of the delegation: a duration such as `2d`, or a time; at most 30 days "
        "from now. `0s` ends a delegation.",
    )
    reason: str = Field("", max_length=_MAX_REASON, description="Reason, recorded permanently.")


class FeedbackQuery(Page):
    """Conditions on feedback.

    `target` selects the feedback on one target.
    """

    target: _Text = Field(
        None, description="Id of a target, as in `target` of POST; by default all feedback."
    )


class FeedbackGiven(_Body):
    """Feedback on an exchange, work order, turn or decision: a score, a label, or both.

    `target` is judged by `score`, `label` and `reason`; `source` says who judged; `idempotency_key`
    prevents a second record.
    """

    target: _Name = Field(
        description="Id of the target: `LED-…` of an exchange, turn or work order, `WO-…`, "
        "`DEC-…`, "
        "`SES-…/3` for a turn, or `SES-…` for the latest turn."
    )
    score: float | None = Field(
        None, allow_inf_nan=False, ge=0, le=1, description="Score from 0 (bad) to 1 (good)."
    )
    label: str = Field(
        "",
        max_length=64,
        description="Label, such as `wrong_unit`; equal labels are counted together.",
    )
    reason: str = Field(
        "",
        max_length=_MAX_REASON,
        description="Reason; stored as content, which is erased with its target.",
    )
    source: Literal["person", "program"] = Field(
        "person", description="Whether a person or a program made the judgement."
    )
    idempotency_key: str = Field(
        "",
        max_length=256,
        description="Idempotency key: a repetition with the same key is not recorded again.",
    )


class PriceQuery(Page):
    """Conditions on prices; all must hold.

    `provider` and `model` select prices; `own` leaves out shipped ones.
    """

    provider: _Text = None
    model: _Text = Field(None, description="Name of a model, or a pattern such as `gpt-4o*`.")
    own: Flag = Field(False, description="Return only prices set by the operator.")


class GateRequest(BaseModel):
    """Gates to check.

    `gates` selects gates, and `full` repeats earlier verification.
    """

    model_config = ConfigDict(extra="forbid")

    gates: list[GateName] = Field([], description="Gates to check; by default all.")
    full: bool = Field(
        False, description="Verify the whole ledger, including entries verified earlier."
    )
