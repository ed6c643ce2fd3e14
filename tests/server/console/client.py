"""A browser's part in the console, without a browser: cookies, forms, redirects not followed."""

from __future__ import annotations

import html
import http.client
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.server.running import Served
from tests.support.waiting import until

VIEWS = (
    "/", "/console/calls", "/console/sessions", "/console/journey", "/console/why",
    "/console/spend", "/console/keys", "/console/approvals", "/console/verify",
    "/console/proposals",
)  # fmt: skip

_FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class Answered:
    """Status, text and headers of an answer."""

    status: int
    text: str
    headers: Mapping[str, str]


class Visitor:
    """Somebody who looks at the console; signed in by :meth:`sign_in`."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.cookie = ""

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answered:
        sent = {"cookie": self.cookie} if self.cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        status, raw, found = self._served.ask(method, path, body, token="", headers=sent)
        return Answered(status, raw.decode(), found)

    def get(self, path: str, **headers: str) -> Answered:
        return self.ask("GET", path, **headers)

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answered:
        return self.ask("POST", path, urlencode(form).encode(), **{**_FORM, **headers})

    def form_token(self, path: str = "/") -> str:
        found = re.search(r'name="token" value="([^"]+)"', self.get(path).text)
        assert found
        return found[1]

    def decide(self, path: str, form: Mapping[str, str]) -> Answered:
        """The form of a page, filled in."""
        sent = self.form_of(path)
        if "token" not in sent:
            sent["token"] = self.form_token()
        return self.post(path, {**sent, **form}, sec_fetch_site="same-origin")

    def form_of(self, path: str) -> dict[str, str]:
        """What a browser would send of a page's form."""
        page = self.get(path).text
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
        for name, text in re.findall(r'<textarea [^>]*name="([^"]+)"[^>]*>([^<]*)<', page):
            fields[name] = html.unescape(text).replace("\n", "\r\n")
        return fields

    def try_key(self, key: str, following: str = "/") -> Answered:
        return self.post("/console/login", {"key": key, "next": following})


def signed_in(served: Served, role: str = "operator", user: str = "") -> Visitor:
    """A visitor with a key of that role, and of that user."""
    visitor = Visitor(served)
    made = served.key(role=role, user=user)
    answered = visitor.try_key(made.key)
    assert answered.status == 303, answered.text
    visitor.cookie = answered.headers["set-cookie"].partition(";")[0]
    until(lambda: visitor.get("/").status == 200)
    return visitor


class Stream:
    """An open stream of live events."""

    def __init__(self, served: Served, cookie: str) -> None:
        self._connection = http.client.HTTPConnection(*served.address, timeout=30)
        self._connection.request("GET", "/console/live", headers={"cookie": cookie})
        self.reply = self._connection.getresponse()

    def rows(self) -> list[dict[str, object]]:
        """Those of the next event that has some."""
        while True:
            line = self.reply.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: ") and (rows := json.loads(line[6:]).get("rows")):
                return list(rows)

    def close(self) -> None:
        self._connection.close()
