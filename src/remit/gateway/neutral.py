"""A client's body in neutral form: for providers that speak no dialect, and for routers."""

from __future__ import annotations

from dataclasses import replace

from remit.kernel.exchange import PromptRequest
from remit.providers.dialects import read_request

__all__ = ["in_neutral_form"]


def in_neutral_form(request: PromptRequest) -> PromptRequest:
    """``request`` with messages, tools and limits in place of its body.

    Raises:
        DialectError: the body asks for what the neutral form cannot say.
    """
    body = request.body
    call = read_request(body.endpoint.name, body.value)
    wanted = call.response_format
    return replace(
        request,
        body=None,
        messages=call.messages,
        max_tokens=call.max_tokens,
        temperature=call.temperature,
        tools=call.tools or None,
        structured_output=None if wanted is None else wanted.schema,
    )
