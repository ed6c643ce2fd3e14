"""Both official SDKs through Remit to a real model: llama.cpp's own server as the upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.settings import default_settings
from remit.runtime import weight_store
from tests.server.running import Served, new_session, serving

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")
pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")

pytestmark = pytest.mark.local_model

_SERVER = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.verbosity = 0
params.ui = False
params.api_keys = ["upstream-secret"]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
_MODELS = {"openai": "openai/smollm2", "anthropic": "anthropic/smollm2"}
_QUESTION = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """The URL of llama.cpp's server, in a process of its own."""
    settings = default_settings()
    try:
        weights = weight_store(settings).path(settings.local.model)
    except RemitError as error:
        pytest.skip(f"the local model's weights are not here: {error.message}")
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(weights)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    address = process.stdout.readline().strip()
    assert address, "llama.cpp's server did not begin"
    yield address if address.startswith("http") else f"http://{address}"
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def served(llama: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Remit in front of it."""
    root = tmp_path_factory.mktemp("local") / "root"
    keys = {"OPENAI_API_KEY": "upstream-secret", "ANTHROPIC_API_KEY": "upstream-secret"}
    with serving(root, llama, environment=keys) as running:
        yield running


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_openai_sdk(served: Served, kind: str, streamed: bool) -> None:
    session = new_session()
    client = openai.OpenAI(
        base_url=f"{served.url}/v1", api_key=served.token, max_retries=0,
        default_headers={"x-remit-session": session},
    )  # fmt: skip
    with client:
        if streamed:
            chunks = list(
                client.chat.completions.create(
                    model=_MODELS[kind], messages=_QUESTION, max_tokens=6, stream=True
                )
            )
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        else:
            answer = client.chat.completions.create(
                model=_MODELS[kind], messages=_QUESTION, max_tokens=6
            )
            text = answer.choices[0].message.content
    _is_on_record(served, session, text)






def _is_on_record(served: Served, session: str, text: str) -> None:
    assert text.strip()
    exchange = served.exchange(session)
    assert exchange.metadata["response"] == text
    assert exchange.metadata["prompt"][-1]["content"] == "Say hello."
    assert exchange.metadata["input_tokens"] > 0
    assert exchange.metadata["output_tokens"] > 0
    # That server does not tell its counts in every stream: then the bound is charged.
    assert exchange.metadata["cost_certainty"] in ("unpriced", "upper_bound")
    assert "cost_usd" not in exchange.metadata
