"""JSON-RPC messages of clients: their parsing, with clear errors."""

from __future__ import annotations

import json
from typing import Any

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)

from remit.kernel.json_text import read_integer
from remit.ledger import is_plain_text


class MessageError(Exception):
    """A value that is not a JSON-RPC message.

    Args:
        code: error code of JSON-RPC.
        why: message for the client.
        answered: id of the request; ``None`` if it is not known.

    Attributes:
        answer: the JSON-RPC 2.0 error response.
    """

    def __init__(self, code: int, why: str, answered: RequestId | None = None) -> None:
        super().__init__(why)
        error = {"code": code, "message": why}
        self.answer: dict[str, Any] = {"jsonrpc": "2.0", "id": answered, "error": error}


def message_of(data: bytes) -> JSONRPCMessage:
    """Return the message in a client's data.

    Args:
        data: JSON in UTF-8; lone surrogates are accepted.

    Raises:
        MessageError: the data is not JSON, or not one message; the error answers its id if it has
            one.
    """
    try:
        # Unlike other readers this one accepts lone surrogates: the message's id is answered.
        value = json.loads(data, parse_int=read_integer)
    except RecursionError:
        raise MessageError(
            PARSE_ERROR, "The message is not valid JSON: it is nested too deeply."
        ) from None
    except ValueError as error:
        raise MessageError(PARSE_ERROR, f"The message is not valid JSON: {error}.") from None
    try:
        message = jsonrpc_message_adapter.validate_json(json.dumps(value), by_name=False)
        if isinstance(message, JSONRPCNotification) and "id" in value:
            raise ValueError("the id is not valid")
    except (ValueError, RecursionError):
        found = value.get("id") if isinstance(value, dict) else None
        usable = type(found) is int or (isinstance(found, str) and is_plain_text(found))
        raise MessageError(INVALID_REQUEST, _fault(value), found if usable else None) from None
    return message


def _fault(value: Any) -> str:
    """Return why a value is not a message."""
    if isinstance(value, list):
        return "Batches of messages are not supported. Send each message separately."
    if not isinstance(value, dict):
        return "A JSON-RPC message must be a JSON object."
    if value.get("jsonrpc") != "2.0":
        return 'A JSON-RPC message must contain "jsonrpc": "2.0".'
    if "id" in value and type(value["id"]) not in (int, str):
        return "The id of a JSON-RPC message must be a string or an integer."
    if "method" not in value and not {"result", "error"} & value.keys():
        return "A JSON-RPC message must contain a method, a result or an error."
    if not isinstance(value.get("method", ""), str):
        return "The method of a JSON-RPC message must be a string."
    if not isinstance(value.get("params", {}), dict):
        return "The params of an MCP message must be a JSON object."
    return "This is not a JSON-RPC message."
