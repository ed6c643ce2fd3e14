"""The settings of approvals by people, and of orders that workers take from a queue."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from remit.kernel.settings.section import Section


class ToolApprovalSettings(Section):
    """``[approvals.tools.TOOL]``: how many people must approve a call, never its requester, and who
    may.

    Without ``approvers`` any operator may approve.

    Raises:
        ValueError: ``approvers`` are given, and fewer different ones than ``people``.
    """

    people: int = Field(1, ge=1, le=20, description="number of different people who must approve")
    approvers: list[str] = Field(
        default_factory=list, description="names or user ids that may approve; empty: any operator"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.approvers and len(set(self.approvers)) < self.people:
            raise ValueError("there are fewer approvers than people who must approve")
        return self


class ApprovalSettings(Section):
    """``[approvals]``: the lifetime of unused approvals, the rules of each tool, and a webhook.

    The webhook is notified of each request, with a signature; the tool's arguments are sent only if
    ``webhook_content`` is True.

    Raises:
        ValueError: the webhook is not an http(s) address, or has no secret.
    """

    valid_s: float = Field(86400.0, gt=0, description="seconds until an unused approval expires")
    webhook: SecretStr = Field(
        SecretStr(""), description="http(s) address that is notified of each request; empty: none"
    )
    webhook_secret: SecretStr = Field(
        SecretStr(""), description="secret that signs webhook messages"
    )
    webhook_content: bool = Field(
        False, description="include the tool's arguments in webhook messages"
    )
    tools: dict[str, ToolApprovalSettings] = Field(
        default_factory=dict, description="approval rules, keyed by tool id"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        url = self.webhook.get_secret_value()
        if url and not url.startswith(("http://", "https://")):
            raise ValueError("webhook is not an http or https address")
        if url and not self.webhook_secret.get_secret_value():
            raise ValueError("a webhook needs webhook_secret, which its messages are signed with")
        return self


class QueueSettings(Section):
    """``[worker.queues.NAME]``: limits of the orders of a queue, over all workers together.

    The number of running orders is limited in all, for each key and for each model; the starts per
    minute, for each key and model. Orders without a key or model are not limited by it. 0 is no
    limit. Starts are spread evenly: 60 is one a second.
    """

    at_once: int = Field(0, ge=0, description="maximum number of running orders of the queue")
    key_at_once: int = Field(0, ge=0, description="maximum number of running orders for each key")
    model_at_once: int = Field(
        0, ge=0, description="maximum number of running orders for each model"
    )
    key_per_minute: int = Field(
        0, ge=0, description="maximum number of orders started per minute for each key"
    )
    model_per_minute: int = Field(
        0, ge=0, description="maximum number of orders started per minute for each model"
    )


class OrderSettings(Section):
    """``[worker.orders]``: how ``remit worker`` does submitted orders.

    The fields are the engine that dispatches them (``dbos`` needs the extra ``cluster``), the
    number at once of each worker, the number of attempts unless an order states its own, the waits
    between them, and the time to finish after SIGTERM, after which other workers continue.
    """

    engine: Literal["table", "dbos"] = Field(
        "table",
        description="how orders are dispatched: from the orders table, or by DBOS (extra cluster)",
    )
    at_once: int = Field(8, ge=1, description="maximum number of concurrent orders of one worker")
    max_attempts: int = Field(
        5, ge=1, description="default number of attempts before an order fails"
    )
    retry_base_s: float = Field(2.0, ge=0, description="first wait before a retry")
    retry_max_s: float = Field(300.0, ge=0, description="longest wait before a retry")
    drain_s: float = Field(
        60.0,
        ge=0,
        description="time to finish turns after SIGTERM; other workers continue the rest"
    )  # fmt: skip
