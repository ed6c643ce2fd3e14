"""What a caller asks the gateway for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.kernel.exchange.messages import Message

__all__ = ["PromptRequest"]


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One call to a model, as an agent orders it (SPEC 4.1).

    Attributes:
        prompt: the rendered prompt; may be empty when ``messages`` is given.
        messages: a conversation (see :mod:`remit.kernel.exchange.messages`). Where given it is what
            is sent, and what the record's ``prompt`` holds.
        max_tokens: most output tokens the provider may produce; ``None`` leaves the end to the
            model, whose largest output is then reserved.
        temperature: sampling temperature, 0 to 2; ``None`` sends none.
        structured_output: a JSON Schema the provider is asked to hold its output to, or
            ``True`` for ``output_schema``.
        input_schema: JSON Schema that ``template_variables`` must satisfy.
        output_schema: JSON Schema that the response's JSON is checked against; a mismatch is
            reported on the response, not refused.
        tools: definitions offered, each ``{"name", "description", "input_schema"}``.
        auth_token: who asks; never recorded, never shown by ``repr``.
        subject_id: the person that the content speaks of; kept beside it for erasure.
        parameters: fields of the call that nothing above names, as ``dialect`` spells them. They
            are sent as they are to a provider of that dialect, translated to another's, and
            recorded.
        dialect: ``openai`` or ``anthropic``.
        idempotency_key: a call that succeeded under the same key is answered from the record.
    """

    prompt: str
    prompt_pack_id: str
    contract_id: str
    agent_id: str
    agent_class: str
    framework_id: str
    package_id: str
    work_order_id: str
    session_id: str
    tier: str
    model_id: str | None = None
    provider_id: str | None = None
    max_tokens: int | None = 4096
    temperature: float | None = 0.0
    structured_output: Mapping[str, Any] | bool | None = None
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    template_variables: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    domain_tags: Sequence[str] | None = None
    auth_token: str | None = None
    subject_id: str | None = None
    messages: Sequence[Message] | None = None
    parameters: Mapping[str, Any] | None = None
    dialect: str | None = None
    idempotency_key: str | None = None

    def __repr__(self) -> str:
        return (
            f"PromptRequest(contract_id={self.contract_id!r}, session_id={self.session_id!r}, "
            f"agent_id={self.agent_id!r}, work_order_id={self.work_order_id!r})"
        )
