"""As much of HTTP/1.1 (RFC 9112) and of the chat dialect as a load and its upstream need."""

from __future__ import annotations

import re

CHAT_PATH = "/v1/chat/completions"
MODEL = "gpt-4o-mini"
MARKER = b"remit-benchmark-answer"
TICK = re.compile(rb"tick (\d+) ")
"""In each streamed chunk: when it left, in ns of the machine's monotonic clock."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


def message_end(buffer: bytes | bytearray) -> int:
    """Bytes of the first whole message in the buffer, request or response; 0 while it is partial.

    Both peers here send one message and wait, so a chunked one ends where the buffer does.
    """
    head = buffer.find(b"\r\n\r\n") + 4
    if head == 3:
        return 0
    if found := _LENGTH.search(buffer, 0, head):
        end = head + int(found[1])
        return end if len(buffer) >= end else 0
    if _CHUNKED.search(buffer, 0, head):
        return len(buffer) if buffer.endswith(b"0\r\n\r\n") else 0
    return head
