"""The settings of approvals: their lifetime, and the people who must approve."""

from __future__ import annotations

from typing import Self

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

    The webhook is notified of each request, with a signature; the tool's arguments are sent only on
    demand.

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
