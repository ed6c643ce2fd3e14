"""An MCP server that answers from a file: ``python scripted_server.py FILE``.

FILE is a JSON object of results by method, read at every request. A list of results gives one page
after another by cursor; ``CURSORS`` gives the page of each cursor, the first at ``0``. ``RAW``
gives the bytes of a whole answer's ``result``, and ``ERROR`` an answer's error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FILE = Path(sys.argv[1])
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method, params = message.get("method"), message.get("params") or {}
        found = json.loads(FILE.read_text()).get(method)
        if method == "initialize":
            found = HELLO | (found or {})
        if isinstance(found, list):
            found = found[int(params.get("cursor") or 0)]
        if found is not None and "CURSORS" in found:
            found = found["CURSORS"][params.get("cursor", "0")]
        if found is not None and "ERROR" in found:
            answer = {"error": found["ERROR"]}
        elif found is None:
            answer = {"error": {"code": -32601, "message": "no such thing"}}
        else:
            answer = {"result": found}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})
        if found is not None and "RAW" in found:
            result = found["RAW"]
            text = json.dumps({"jsonrpc": "2.0", "id": message["id"]})[:-1]
            text += f', "result": {result}}}'
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
