"""Models on Bedrock and Vertex AI, behind servers that check every signature and token."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import anthropic
import jwt
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from remit.providers import EVENT_STREAM, frame
from tests.server.running import Served, new_session, serving
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.wire import completion, message, message_events, sse

_REGION = "eu-central-1"
_SECRETS = Credentials("AKIDEXAMPLE", "aws-secret-key", "aws-session-token")
_CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
_VERTEX_CLAUDE = "claude-sonnet-4-5@20250929"
_REFUSED = {"message": "The model does not support this."}
_MESSAGE = message("Good day.", input_tokens=20, output_tokens=7)
_GENERATED = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Good day."}]},
                    "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 7, "totalTokenCount": 27},
}  # fmt: skip
_NOVA = "eu.amazon.nova-pro-v1:0"
_CONVERSED: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Good day."}]}},
    "stopReason": "end_turn", "metrics": {"latencyMs": 5},
    "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 27, "cacheReadInputTokens": 12,
              "cacheWriteInputTokens": 3, "cacheDetails": [{"ttl": "1h", "inputTokens": 3}]},
}  # fmt: skip
_CHAT = completion("Good day.", prompt_tokens=20, completion_tokens=7)


class Clouds(ThreadingHTTPServer):
    """Bedrock, Vertex AI and Google's token endpoint on one address.

    Attributes:
        calls: path, headers and body of each call of a model that was let in.
        raw: the body of the last of them, byte for byte.
        tokens: access tokens in force.
        spoil: returns the bytes to send in place of those of a stream.
        exception: exception that ends each stream of Converse; empty for none.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Cloud)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.calls: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.tokens: set[str] = set()
        self.raw = b""
        self.spoil: Callable[[bytes], bytes] = bytes
        self.exception = ""
        self.account = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _Cloud(BaseHTTPRequestHandler):
    server: Clouds
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/token":
            self._give_token(raw)
        elif self.path.startswith("/v1/projects/p/locations/l/"):
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            is_known = (
                token in self.server.tokens or self.headers["x-goog-api-key"] == "vertex-api-key"
            )
            self._answer(raw, is_known)
        else:
            self._answer(raw, self._is_signed(raw))

    def _is_signed(self, raw: bytes) -> bool:
        """Return True if the signature is the one that Amazon's own library computes."""
        if self.headers["authorization"] == "Bearer bedrock-api-key":
            return True
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/(\d{8})/([a-z0-9-]+)/bedrock/aws4_request, "
            r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})",
            self.headers["authorization"],
        )
        if found is None or self.headers["x-amz-security-token"] != _SECRETS.token:
            return False
        day, region, names, signature = found.groups()
        stamp = self.headers["x-amz-date"]
        sent = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        is_late = abs(time.time() - sent.timestamp()) > 300
        request = AWSRequest("POST", f"{self.server.url}{self.path}", data=raw)
        for name in names.split(";"):
            request.headers[name] = self.headers[name]
        request.context["timestamp"] = stamp
        auth = SigV4Auth(_SECRETS, "bedrock", region)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        is_whole = {"host", "x-amz-date", "x-amz-security-token"} <= set(names.split(";"))
        expected = auth.signature(text, request)
        return is_whole and not is_late and stamp[:8] == day and expected == signature

    def _give_token(self, raw: bytes) -> None:
        """Exchange a signed assertion for an access token."""
        [assertion] = parse_qs(raw.decode())["assertion"]
        claims = jwt.decode(assertion, self.server.account.public_key(), ["RS256"],
                            audience="https://oauth2.googleapis.com/token")  # fmt: skip
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        token = f"google-token-{len(self.server.tokens)}-{time.time_ns()}"
        self.server.tokens.add(token)
        self._send(200, {"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _answer(self, raw: bytes, is_known: bool) -> None:
        if not is_known:
            said = f"The token {self.headers['authorization']} is invalid."
            return self._send(403, {"message": said}, **{"x-amzn-errortype": "AccessDenied"})
        self.server.raw = raw
        body = json.loads(raw)
        self.server.calls.append((self.path, {**self.headers}, body))
        path = unquote(self.path)
        if path.endswith("/chat/completions"):
            return self._send(200, _CHAT)
        streams = path.endswith(":streamRawPredict")
        if streams != (body.pop("stream", None) is True):
            return self._send(400, {"message": "stream is true for streamRawPredict alone"})
        if odd := {"model", "stream"} & body.keys():
            return self._send(400, {"message": f"extraneous key {odd} is not permitted"})
        if path.endswith(("/invoke", ":rawPredict")):
            return self._send(200, _MESSAGE)
        if path.endswith("/invoke-with-response-stream"):
            return self._stream(EVENT_STREAM, *map(_chunk, message_events(_MESSAGE)))
        if path.endswith(":streamRawPredict"):
            return self._stream("text/event-stream", *sse(message_events(_MESSAGE)))
        if path.endswith(":generateContent"):
            return self._send(200, _GENERATED)
        if path.endswith(":streamGenerateContent?alt=sse"):
            return self._stream("text/event-stream", *sse([_GENERATED]))
        if path.endswith("/converse"):
            if "refused" in raw.decode():
                return self._send(400, _REFUSED, **{"x-amzn-errortype": "ValidationException"})
            return self._send(200, _CONVERSED)
        if path.endswith("/converse-stream"):
            return self._stream(EVENT_STREAM, *_conversed(self.server.exception))
        return self._send(404, {"message": f"{self.path} is unknown"})

    def _send(self, status: int, value: Any, **headers: str) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", **headers}.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, kind: str, *parts: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(self.server.spoil(b"".join(parts)))
        self.close_connection = True


def _frame(name: str, event: dict[str, Any]) -> bytes:
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(event).encode())


def _chunk(event: dict[str, Any]) -> bytes:
    return _frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()})


def _conversed(exception: str = "") -> list[bytes]:
    """Return the frames of an answer, or of its beginning and an exception."""
    frames = [
        _frame("messageStart", {"role": "assistant", "p": "abc"}),
        _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Good "}}),
    ]
    if exception:
        headers = {":exception-type": exception, ":content-type": "application/json",
                   ":message-type": "exception"}  # fmt: skip
        return [*frames, frame(headers, b'{"message":"Not now."}')]
    usage = {name: _CONVERSED[name] for name in ("usage", "metrics")}
    return [
        *frames,
        _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "day."}}),
        _frame("contentBlockStop", {"contentBlockIndex": 0}),
        _frame("messageStop", {"stopReason": "end_turn"}),
        _frame("metadata", usage),
    ]


_ENCODERS = {
    f"invoked/{_CLAUDE}": lambda events: b"".join(map(_chunk, events)),
    f"rawpredict/{_VERTEX_CLAUDE}": lambda events: b"".join(sse(events)),
}


@pytest.fixture(scope="module")
def clouds() -> Iterator[Clouds]:
    with Clouds() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def _unspoilt(clouds: Clouds) -> Iterator[None]:
    yield
    clouds.spoil, clouds.exception = bytes, ""


@pytest.fixture(scope="module")
def served(clouds: Clouds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("clouds")
    private = clouds.account.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = directory / "account.json"
    account.write_text(json.dumps({
        "type": "service_account", "client_email": "remit@p.iam.gserviceaccount.com",
        "private_key": private.decode(), "private_key_id": "1", "project_id": "p",
        "token_uri": f"{clouds.url}/token",
    }))  # fmt: skip
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "aws-secret-key",
        "AWS_SESSION_TOKEN": "aws-session-token", "AWS_REGION": _REGION,
        "AWS_DEFAULT_REGION": _REGION, "GOOGLE_APPLICATION_CREDENTIALS": str(account),
    }  # fmt: skip
    vertex = f"{clouds.url}/v1/projects/p/locations/l"
    rows = [
        ("bedrock", f"{clouds.url}/openai/v1", {"kind": "openai", "cloud": "aws"}),
        ("keyed", clouds.url, {"kind": "anthropic", "cloud": "aws", "api_key": "bedrock-api-key"}),
        (
            "vertexkey",
            vertex,
            {"kind": "anthropic", "cloud": "google", "api_key": "vertex-api-key"},
        ),
        (
            "strange",
            clouds.url,
            {"kind": "anthropic", "cloud": "aws", "api_key": "wrong-bedrock-key"},
        ),
        ("conversed", clouds.url, {"kind": "converse", "cloud": "aws"}),
        (
            "cool",
            clouds.url,
            {"kind": "converse", "api_key": "bedrock-api-key", "send_temperature": False},
        ),
        ("invoked", clouds.url, {"kind": "anthropic", "cloud": "aws"}),
        ("vertex", vertex, {"kind": "gemini", "cloud": "google"}),
        ("rawpredict", vertex, {"kind": "anthropic", "cloud": "google"}),
        ("endpoints", f"{vertex}/endpoints/openapi", {"kind": "openai", "cloud": "google"}),
    ]
    toml = "[gateway]\nretry_base_ms = 1\nfailure_threshold = 1000\n"
    for name, url, more in rows:
        toml += f'[providers.{name}]\nbase_url = "{url}"\n'
        toml += "".join(f"{key} = {json.dumps(each)}\n" for key, each in more.items())
    root = new_root(directory / "root", toml)
    for model in _ENCODERS:
        provider, _, name = model.partition("/")
        done = run_remit("price", "set", name, "--provider", provider, "--input", "3", "--output",
                         "15", "--context-window", "200000", "--max-output-tokens", "64000",
                         "--root", root)  # fmt: skip
        assert done.returncode == 0, done.stderr
    with serving(root, clouds.url, environment=environment) as running:
        yield running


_ANSWERS = ("vertex/gemini-2.5-pro", f"rawpredict/{_VERTEX_CLAUDE}",
            f"vertexkey/{_VERTEX_CLAUDE}", f"keyed/{_CLAUDE}", f"invoked/{_CLAUDE}",
            f"conversed/{_NOVA}", f"cool/{_NOVA}",
            "bedrock/openai.gpt-oss-120b-1:0", "endpoints/google/gemini-2.5-flash")  # fmt: skip


@pytest.mark.parametrize("model", _ANSWERS)
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_every_client_reaches_the_models_of_both_clouds(
    served: Served, clouds: Clouds, dialect: str, model: str
) -> None:
    session = new_session()
    status, raw, _ = served.call(dialect, "hi", model=model, session=session)
    assert status == 200, raw
    assert b"Good day." in raw
    _assert_counted(served.exchange(session).metadata, model)
    path, _, body = clouds.calls[-1]
    assert model.partition("/")[2] in (unquote(path).partition("/models/")[2].partition(":raw")[0]
                                       .partition(":generate")[0],
                                       unquote(path).removeprefix("/model/").rpartition("/")[0],
                                       body.get("model"))  # fmt: skip


@pytest.mark.parametrize("model", _ANSWERS[:-2])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_streams_of_frames_and_of_events(
    served: Served, clouds: Clouds, dialect: str, model: str
) -> None:
    session = new_session()
    if model.startswith("invoked"):  # Bytes after the end of an answer change nothing.
        clouds.spoil = lambda wire: wire + b"\0" * 12
    status, raw, _ = served.call(dialect, "hi", model=model, session=session, stream=True)
    assert status == 200
    said = re.findall(r'"(?:content|text)":"([^"]+)"', raw.decode().replace('": "', '":"'))
    assert "".join(said) == "Good day."
    assert raw.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}', b'"message_stop"}'))
    _assert_counted(served.exchange(session).metadata, model)


def _assert_counted(recorded: dict[str, Any], model: str) -> None:
    """Of Converse, tokens of the cache count too."""
    assert recorded["outcome"] == "success"
    assert (recorded["input_tokens"], recorded["output_tokens"]) == (20, 7)
    if _NOVA in model:
        assert (recorded["cached_input_tokens"], recorded["cache_write_tokens"]) == (12, 3)


@pytest.mark.parametrize(
    ("version", "bedrock", "vertex"),
    [("2023-06-01", "bedrock-2023-05-31", "vertex-2023-10-16"),
     ("2026-10-21", "2026-10-21", "2026-10-21")],
)  # fmt: skip
def test_a_client_of_the_messages_api_keeps_its_bytes_on_both_clouds(
    served: Served, clouds: Clouds, version: str, bedrock: str, vertex: str
) -> None:
    client = anthropic.Anthropic(auth_token=served.token, base_url=served.url, max_retries=0)
    asked: Any = {"max_tokens": 50, "messages": [{"role": "user", "content": "hi"}],
                  "extra_headers": {"anthropic-beta": "context-1m-2025-08-07",
                                    "anthropic-version": version}}  # fmt: skip
    message = client.messages.create(model=f"invoked/{_CLAUDE}", **asked)
    assert message.content[0].type == "text"
    path, headers, body = clouds.calls[-1]
    assert path == f"/model/{_CLAUDE.replace(':', '%3A')}/invoke"
    assert body == {"max_tokens": 50, "messages": asked["messages"],
                    "anthropic_version": bedrock,
                    "anthropic_beta": ["context-1m-2025-08-07"]}  # fmt: skip
    assert not {"anthropic-beta", "anthropic-version"} & headers.keys()
    client.messages.create(model=f"rawpredict/{_VERTEX_CLAUDE}", **asked)
    path, headers, body = clouds.calls[-1]
    assert path.endswith(f"/publishers/anthropic/models/{_VERTEX_CLAUDE}:rawPredict")
    assert body["anthropic_version"] == vertex
    assert headers["anthropic-beta"] == "context-1m-2025-08-07"


def test_neither_a_refused_key_nor_a_refused_token_is_shown(served: Served, clouds: Clouds) -> None:
    session, secrets = new_session(), ("wrong-bedrock-key", "google-token-")
    served.call("openai", "hi", model="vertex/gemini-2.5-pro", session=session)
    before, clouds.tokens = clouds.tokens, set()
    try:
        answers = [served.call(dialect, "hi", model=model, session=session)
                   for dialect, model in (("openai", "strange/claude-sonnet-4-5"),
                                          ("anthropic", "vertex/gemini-2.5-pro"))]  # fmt: skip
    finally:
        clouds.tokens = before
    for status, raw, _ in answers:
        assert (status, json.loads(raw)["error"]["code"]) == (502, "auth_error"), raw
        assert not any(secret.encode() in raw for secret in secrets)
    recorded = str([entry.metadata for entry in served.ledger.query(session_id=session)])
    assert not any(secret in recorded for secret in secrets)


def _converse(
    served: Served, body: bytes, verb: str = "converse", model: str = f"conversed/{_NOVA}",
    session: str = "",
) -> tuple[int, bytes, Any]:  # fmt: skip
    headers = {"content-type": "application/json", "x-remit-session": session or new_session()}
    return served.ask("POST", f"/model/{quote(model, safe='')}/{verb}", body, headers=headers)


_ASKED = (
    b'{ "messages":[{"role":"user", "content":[{"text":"hi \\u00e9"}]}],\n'
    b' "inferenceConfig":{"maxTokens":50,"temperature":0.70},"requestMetadata":{"team":"a"},'
    b'"guardrailConfig":{"guardrailIdentifier":"g","guardrailVersion":"1"},"n":12345678901234567890}'
)


def test_a_client_of_converse_keeps_all_bytes(served: Served, clouds: Clouds) -> None:
    status, raw, _ = _converse(served, _ASKED)
    assert (status, json.loads(raw)) == (200, _CONVERSED)
    assert clouds.raw == _ASKED
    assert clouds.calls[-1][0] == f"/model/{quote(_NOVA, safe='')}/converse"
    session = new_session()
    status, raw, headers = _converse(served, _ASKED, "converse-stream", session=session)
    assert (status, headers["content-type"]) == (200, EVENT_STREAM)
    assert raw == b"".join(_conversed())
    assert clouds.raw == _ASKED
    found = served.exchange(session).metadata
    assert found["wire"] == "bedrock.converse"
    assert found["outcome"] == "success"


def test_a_frame_with_a_wrong_checksum_is_a_failure(served: Served, clouds: Clouds) -> None:
    session = new_session()
    clouds.spoil = lambda wire: wire.replace(b"Good ", b"Bood ")
    try:
        _, raw, _ = served.call("openai", "hi", model=f"conversed/{_NOVA}", session=session,
                                stream=True)  # fmt: skip
    finally:
        clouds.spoil = bytes
    assert b"Bood" not in raw
    calls = [entry.metadata for entry in served.entries("EXCHANGE", session)]
    assert calls
    assert all("checksum" in call["error_message"] for call in calls)


def test_only_the_seals_of_the_provider_reach_it(served: Served, clouds: Clouds) -> None:
    def sent(signature: str, model: str) -> list[Any]:
        thought = {"reasoningText": {"text": "Hm.", "signature": signature}}
        turns = [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"reasoningContent": thought}, {"text": "a"}]},
            {"role": "user", "content": [{"text": "on"}]},
        ]
        status, raw, _ = _converse(served, json.dumps({"messages": turns}).encode(), model=model)
        assert status == 200, raw
        return [next(iter(block)) for block in clouds.calls[-1][2]["messages"][1]["content"]]

    own = "Eg" + "A" * 60
    assert sent(own, f"conversed/{_CLAUDE}") == ["reasoningContent", "text"]
    assert sent(own, f"conversed/{_NOVA}") == ["text"]
    assert sent("remit-openai-reasoning:rs_1:gAAAA", f"conversed/{_CLAUDE}") == ["text"]


def test_a_chat_completion_in_the_words_of_converse(served: Served, clouds: Clouds) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = {
        "model": f"cool/{_NOVA}", "max_tokens": 50, "temperature": 0.5, "stop": "END", "seed": 1,
        "reasoning_effort": "low", "user": "ann", "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, _PICTURE, _PAGE, _PAGE]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function",
                 "function": {"name": "look", "arguments": '{"city":"Paris"}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
    }  # fmt: skip
    status, raw, headers = served.ask("POST", "/v1/chat/completions", body)
    assert status == 200, raw
    assert headers["x-remit-dropped"].split(", ") == [
        "seed", "reasoning_effort", "user", "temperature",
    ]  # fmt: skip
    page = {"format": "pdf", "source": {"bytes": "JVBERi0="}}
    call = {"toolUseId": "call_1", "name": "look", "input": {"city": "Paris"}}
    assert clouds.calls[-1][2] == {
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [
                {"text": "hi"},
                {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
                {"document": {"name": "a pdf", **page}},
                {"document": {"name": "a pdf (2)", **page}}]},
            {"role": "assistant", "content": [{"toolUse": call}]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "call_1", "content": [{"text": "sunny"}]}}]},
        ],
        "inferenceConfig": {"maxTokens": 50, "stopSequences": ["END"]},
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": schema}}}],
            "toolChoice": {"any": {}},
        },
    }  # fmt: skip


_PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_PAGE = {"type": "file", "file": {
    "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": "none"}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}]}]},
         "messages"),
    ],
)  # fmt: skip
def test_what_converse_cannot_express_is_refused(
    served: Served, clouds: Clouds, more: dict[str, Any], param: str
) -> None:
    calls = len(clouds.calls)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    body = {"model": f"conversed/{_NOVA}", "tools": [tool],
            "messages": [{"role": "user", "content": "hi"}], **more}  # fmt: skip
    status, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    assert status == 400
    assert json.loads(raw)["error"]["param"].startswith(param)
    assert len(clouds.calls) == calls


@pytest.mark.parametrize("model", _ENCODERS)
@pytest.mark.parametrize(
    ("missing", "tokens_in", "certainty"),
    [(1, 20, "measured"), (1, 9_000, "measured"), (2, 20, "estimated"), (2, 9_000, "estimated")],
)
def test_a_cut_stream_costs_the_usage_that_it_stated(
    served: Served, clouds: Clouds, model: str, missing: int, tokens_in: int, certainty: str
) -> None:
    events = message_events(message("Good day.", input_tokens=tokens_in, output_tokens=40))
    session, clouds.spoil = new_session(), lambda _: _ENCODERS[model](events[:-missing])
    served.call("anthropic", "hi", model=model, session=session, stream=True)
    told = served.exchange(session).metadata
    assert (told["outcome"], told["cost_certainty"]) == ("error", certainty)
    assert told["input_tokens"] == tokens_in
    assert ("cost" in told.get("over_bound", ())) == (tokens_in > 1_000)
    assert (told["output_tokens"] == 40) == (certainty == "measured")
    nano = 3_000 * tokens_in + 15_000 * told["output_tokens"]
    assert round(told["cost_usd"] * 1e9) == nano
