"""An MCP server by hand that can misbehave: ``python stdio_server.py [MODE]``.

Modes: ``silent`` answers nothing; ``dies`` ends in initialize after a word on stderr; ``stubborn``
ends neither with its stdin nor on SIGTERM; ``endless`` lists tools for ever. Its tools misbehave
by themselves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
OPEN = {"type": "object"}
SCHEMAS: dict[str, Any] = {
    "echo": {"type": "object", "properties": {"value": {}}},
    "bad schema": {"type": "object", "properties": {"x": {"type": "nonsense"}}},
    "delete.file": OPEN,
}
NAMES = ["echo", "environment", "pid", "child", "hang", "die", "huge", "fails", "media", "meta",
         "protocol_error", "bad schema", "delete.file", "grow", "flood", "garble",
         "added"]  # fmt: skip


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed(params: dict[str, Any]) -> dict[str, Any]:
    """Two tools a page."""
    start = int(params.get("cursor") or 0)
    names = NAMES if os.path.exists(os.environ.get("GROWN", "/nowhere")) else NAMES[:-1]
    page = [
        {
            "name": name,
            "description": f"does {name}",
            **(
                {"outputSchema": {"type": "object", "properties": {"size": {"type": "integer"}}}}
                if name == "grow"
                else {}
            ),
            "inputSchema": SCHEMAS.get(name, OPEN),
            "annotations": {"idempotentHint": True, "readOnlyHint": True},
        }
        for name in names[start : start + 2]
    ]
    more = start + 2 < len(names)
    if MODE == "no object":
        page[0]["inputSchema"] = {"type": "string"}
    if MODE == "endless":
        time.sleep(0.1)
        return {"tools": [], "nextCursor": str(start + 1)}
    return {"tools": page, **({"nextCursor": str(start + 2)} if more else {})}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def called(params: dict[str, Any]) -> dict[str, Any] | None:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "echo":
        value = {"value": arguments.get("value")}
        if arguments.get("bare"):
            return {"structuredContent": value}
        return text(json.dumps(value), structuredContent=value)
    if name == "environment":
        return text(json.dumps(dict(os.environ)))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return text(str(child.pid))
    if name == "hang":
        return None
    if name == "die":
        os._exit(3)
    if name == "huge":
        return text("x" * 50_000_000)
    if name == "flood":
        while True:
            send({"method": "notifications/tools/list_changed"})
            send({"method": "notifications/message", "params": {"level": "info", "data": "x"}})
    if name == "garble":
        for line in ("{", "[1, 2", "null", '{"jsonrpc": "2.0", "id": 99999, "result": {}}',
                     '{"jsonrpc": "2.0", "method": "no/such/thing"}', "\x00"):  # fmt: skip
            print(line, flush=True)
    if name == "grow":
        return text("", structuredContent={"size": "large"})
    if name == "fails":
        return text(f"it failed with {os.environ.get('TOKEN', '')}", isError=True)
    if name == "media":
        blocks = [
            {"type": "text", "text": "a picture:"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAA="}},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]
        return {"content": blocks}
    if name == "meta":
        return text(json.dumps(params.get("_meta", {})))
    return text("done")


def main() -> None:
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("this is no JSON", flush=True)
    print('{"nor": "a message"}', flush=True)
    sys.stderr.write("chatter " * 100_000)
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message or MODE == "silent":
            continue
        if MODE == "dies":
            sys.stderr.write(f"\nno licence for {os.environ.get('TOKEN', 'nobody')}\n")
            sys.exit(1)
        if method == "initialize":
            result: dict[str, Any] | None = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "by hand", "version": "1"},
            }
        elif method == "tools/list":
            result = listed(params)
        elif method == "tools/call" and params["name"] != "protocol_error":
            result = called(params)
        else:
            code = (params.get("arguments") or {}).get("code", -32601)
            send({"id": message["id"], "error": {"code": code, "message": "no such thing"}})
            continue
        if result is not None:
            send({"id": message["id"], "result": result})
    while MODE == "stubborn":
        time.sleep(1)


if __name__ == "__main__":
    main()
