"""How each gateway is started, at its best sane settings, and where requests to it go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gateways import environments, processes
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.processes import free_port
from benchmarks.gateways.target import Bodies, Target
from benchmarks.gateways.wire import CHAT_PATH, MARKER, MODEL

START_S = 120
POLL_S = 0.01
LOG_LINES = 5
LITELLM_KEY = "sk-benchmark"
BUDGET_USD = "100000"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Launch:
    """A gateway that can be started.

    Attributes:
        command: program and arguments.
        target: where its chat endpoint will be.
        environment: variables added to ours.
    """

    command: list[str | Path]
    target: Target
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs.

    Attributes:
        target: its chat endpoint.
        pid: of its first process; all others are below it.
        start_s: from starting the process to its first good answer.
    """

    target: Target
    pid: int
    start_s: float


def floor(upstream: str, directory: Path) -> Launch:
    """A bare proxy of the parts that a quick Python gateway is made of."""
    port = free_port()
    command: list[str | Path] = [
        environments.python_environment("floor") / "python",
        *("-m", "uvicorn", "--app-dir", _HERE, "floor:app", "--port", str(port)),
        *("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"),
    ]
    return Launch(command, Target(_chat_url(port)), {"FLOOR_UPSTREAM": upstream})


def litellm(upstream: str, directory: Path) -> Launch:
    """LiteLLM's proxy: a master key, no database, no callbacks, production logging.

    Granian as its server was up to a fifth quicker than uvicorn with httptools, and
    its ``hosted_vllm`` adapter, on aiohttp, than ``openai``, on OpenAI's SDK.
    """
    port, binaries = free_port(), environments.python_environment("litellm")
    config = {
        "model_list": [
            {
                "model_name": MODEL,
                "litellm_params": {
                    "model": f"hosted_vllm/{MODEL}",
                    "api_base": f"{upstream}/v1",
                    "api_key": "x",
                },
            }
        ],
        "general_settings": {"master_key": LITELLM_KEY},
        "litellm_settings": {"set_verbose": False, "disable_end_user_cost_tracking": True},
    }
    path = directory / "litellm.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    command: list[str | Path] = [
        *(binaries / "litellm", "--config", path, "--host", "127.0.0.1", "--port", str(port)),
        *("--num_workers", "1", "--run_granian"),
    ]
    environment = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would look on the network first
        "PATH": f"{binaries}:{os.environ['PATH']}",
    }
    return Launch(command, Target(_chat_url(port), _bearer(LITELLM_KEY)), environment)


def portkey(upstream: str, directory: Path) -> Launch:
    """Portkey's open-source gateway on Node.js; it has neither keys nor budgets nor records."""
    port, home = free_port(), environments.node_environment("portkey")
    script = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    headers = {
        **_bearer("x"),
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"{upstream}/v1",
    }
    node = shutil.which("node") or "node"
    command: list[str | Path] = [node, script, f"--port={port}", "--headless"]
    return Launch(command, Target(_chat_url(port), headers), {"NODE_ENV": "production"})


def mlflow(upstream: str, directory: Path) -> Launch:
    """MLflow's AI gateway from a configuration file, which has no keys and no records."""
    port, binaries = free_port(), environments.python_environment("mlflow")
    endpoint = {
        "name": MODEL,
        "endpoint_type": "llm/v1/chat",
        "model": {
            "provider": "openai",
            "name": MODEL,
            "config": {"openai_api_key": "x", "openai_api_base": f"{upstream}/v1"},
        },
    }
    path = directory / "mlflow.yaml"
    path.write_text(json.dumps({"endpoints": [endpoint]}))
    command: list[str | Path] = [
        *(binaries / "mlflow", "gateway", "start", "--config-path", path),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    ]
    environment = {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_GATEWAY_API_BASE_ALLOW_PRIVATE_IPS": "true",
    }
    return Launch(command, Target(_chat_url(port)), environment)


def remit(
    upstream: str,
    directory: Path,
    *,
    workers: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Launch:
    """Remit with everything on: a new root, a virtual key with a budget, both records of a call.

    Args:
        upstream: its base URL, without ``/v1``.
        directory: gets the root.
        workers: for ``--workers``; None leaves it out.
        environment: more variables, such as ``REMIT_DATABASE_URL``.
    """
    port, root = free_port(), directory / "root"
    variables = {
        "OPENAI_BASE_URL": f"{upstream}/v1",
        "OPENAI_API_KEY": "x",
        **(environment or {}),
    }
    program: list[str | Path] = [sys.executable, "-m", "remit"]
    _ask([*program, "init", root], variables)
    create = ["key", "create", "--name", "bench", "--budget-usd", BUDGET_USD, "--json"]
    key = json.loads(_ask([*program, *create, "--root", root], variables))["key"]
    command: list[str | Path] = [*program, "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--root", root]
    if workers:
        command += ["--workers", str(workers)]
    return Launch(command, Target(_chat_url(port), _bearer(key)), variables)


PEERS: dict[str, Callable[[str, Path], Launch]] = {
    "remit": remit,
    "floor": floor,
    "litellm": litellm,
    "portkey": portkey,
    "mlflow": mlflow,
}


@contextmanager
def running(launch: Launch, directory: Path, core: set[int] | None) -> Iterator[Gateway]:
    """Start a gateway, wait for its first good answer, and stop it at the end of the block.

    Args:
        launch: what to start.
        directory: gets what it prints.
        core: where it may run; None for anywhere.

    Raises:
        UnavailableError: it ended, or did not answer in time.
    """
    log = directory / "gateway.log"
    started = time.perf_counter()
    process = processes.spawn(
        launch.command, core=core, environment=launch.environment, log=log, directory=directory
    )
    try:
        while said := _answer(launch.target):
            late = time.perf_counter() - started > START_S
            if late or process.poll() is not None:
                lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
                how = f"did not answer in {START_S} s" if late else "ended"
                raise UnavailableError(f"It {how}; last: {said}; it printed: {' | '.join(lines)}")
            time.sleep(POLL_S)
        yield Gateway(launch.target, process.pid, time.perf_counter() - started)
    finally:
        processes.stop(process)


def _answer(target: Target) -> str:
    """Ask once; what was wrong with the answer, or nothing."""
    request = urllib.request.Request(
        target.url,
        data=Bodies(target).next().partition(b"\r\n\r\n")[2],
        headers={**target.headers, "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=START_S) as response:
            content: bytes = response.read()
            return "" if MARKER in content else content.decode(errors="replace")[:300]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode(errors='replace')[:300]}"
    except OSError as error:
        return str(error)


def _ask(command: list[str | Path], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        words = " ".join(str(part) for part in command[1:4])
        raise UnavailableError(f"{words} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _chat_url(port: int) -> str:
    return f"http://127.0.0.1:{port}{CHAT_PATH}"


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
