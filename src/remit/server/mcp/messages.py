"""JSON-RPC messages of clients: their parsing, clear errors, and batches.

A batch is an array of messages and is answered with an array. Only version 2025-03-26 of MCP has
batches.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
    jsonrpc_message_adapter,
)

from remit.kernel.json_text import read_integer
from remit.ledger import is_plain_text

WITH_BATCHES = "2025-03-26"
_MAX_BATCH = 100  # messages of one batch


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


def parsed(data: bytes) -> Any:
    """Return a client's data parsed as JSON. Lone surrogates are accepted.

    Args:
        data: the data in UTF-8.

    Raises:
        MessageError: the data is not JSON.
    """
    try:
        # Unlike other readers this one accepts lone surrogates: the message's id is answered.
        return json.loads(data, parse_int=read_integer)
    except RecursionError:
        raise MessageError(
            PARSE_ERROR, "The message is not valid JSON: it is nested too deeply."
        ) from None
    except ValueError as error:
        raise MessageError(PARSE_ERROR, f"The message is not valid JSON: {error}.") from None


def message_of(value: Any) -> JSONRPCMessage:
    """Return one message.

    Args:
        value: a parsed JSON value.

    Raises:
        MessageError: the value is not a message; the error answers its id if it has one.
    """
    try:
        message = jsonrpc_message_adapter.validate_json(json.dumps(value), by_name=False)
        if isinstance(message, JSONRPCNotification) and "id" in value:
            raise ValueError("the id is not valid")
    except (ValueError, RecursionError):
        found = value.get("id") if isinstance(value, dict) else None
        usable = type(found) is int or (isinstance(found, str) and is_plain_text(found))
        raise MessageError(INVALID_REQUEST, _fault(value), found if usable else None) from None
    return message


def negotiated_version(answer: Any) -> str:
    """Return the protocol version in the answer to an ``initialize``; empty without one.

    Args:
        answer: the parsed answer; any value.
    """
    result = answer.get("result") if isinstance(answer, dict) else None
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    return version if isinstance(version, str) else ""


class Batch:
    """The messages of one batch, and the answers to them.

    Args:
        values: the elements of the array.
        version: the protocol version of the session; empty without a session.

    Attributes:
        messages: the valid messages.
        waiting: ids of the unanswered requests.
        answers: the errors of invalid elements, then the answers so far, in their order of arrival.

    Raises:
        MessageError: the version has no batches, or the batch is empty or too long.
    """

    def __init__(self, values: list[Any], version: str) -> None:
        if version != WITH_BATCHES:
            spoken = f"this session uses {version}" if version else "there is no such session"
            raise MessageError(
                INVALID_REQUEST,
                f"Only MCP {WITH_BATCHES} has batches of messages, and {spoken}. Send each message "
                "separately.",
            )
        if not 0 < len(values) <= _MAX_BATCH:
            why = (
                "The batch is empty."
                if not values
                else f"A batch may contain at most {_MAX_BATCH} messages."
            )
            raise MessageError(INVALID_REQUEST, why)
        self.messages: list[JSONRPCMessage] = []
        self.waiting: set[RequestId] = set()
        self.answers: list[dict[str, Any]] = []
        for value in values:
            try:
                message = message_of(value)
                if isinstance(message, JSONRPCRequest):
                    if message.method == "initialize":
                        why = "initialize must not be part of a batch."
                        raise MessageError(INVALID_REQUEST, why, message.id)
                    if message.id in self.waiting:
                        why = f"The batch contains the id {message.id!r} twice."
                        raise MessageError(INVALID_REQUEST, why)
                    self.waiting.add(message.id)
                self.messages.append(message)
            except MessageError as error:
                self.answers.append(error.answer)

    def answer(self, answered: RequestId, answer: dict[str, Any] | None) -> None:
        """Add the answer to a request to the answers of the batch; nothing is sent.

        Args:
            answered: id of the request, which no longer waits.
            answer: the message; None, if the client has cancelled the request, adds nothing.
        """
        self.waiting.discard(answered)
        if answer is not None:
            self.answers.append(answer)


def _fault(value: Any) -> str:
    """Return why a value is not a message."""
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
