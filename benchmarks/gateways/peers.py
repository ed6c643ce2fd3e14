"""How each gateway is started, at its best sane settings, and where requests to it go."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.gateways import environments, handwritten, ours, proxy
from benchmarks.gateways.launch import Launch, bearer, chat_url
from benchmarks.gateways.processes import free_port
from benchmarks.gateways.target import Target
from benchmarks.gateways.wire import MODEL

FLOOR_KEY = "sk-floor"
LITELLM_KEY = "sk-benchmark"


def recording(upstream: str, directory: Path) -> Launch:
    """Written by hand, two durable records of each call."""
    return _handwritten(upstream, "--record", directory / "records.db")


def forwarding(upstream: str, directory: Path) -> Launch:
    """The same, recording nothing."""
    return _handwritten(upstream)


def _handwritten(upstream: str, *options: str | Path) -> Launch:
    port = free_port()
    command: list[str | Path] = [sys.executable, handwritten.__file__, "--port", str(port)]
    command += ["--upstream", upstream, "--key", FLOOR_KEY, *options]
    return Launch(command, Target(chat_url(port), bearer(FLOOR_KEY)))


def bare_proxy(upstream: str, directory: Path) -> Launch:
    """The parts that a quick Python gateway is made of, recording nothing."""
    port, path = free_port(), Path(proxy.__file__)
    command: list[str | Path] = [
        *(sys.executable, "-m", "uvicorn", "--app-dir", path.parent, f"{path.stem}:app"),
        *("--port", str(port), "--loop", "uvloop", "--http", "httptools"),
        *("--no-access-log", "--log-level", "warning"),
    ]
    return Launch(command, Target(chat_url(port)), {proxy.UPSTREAM_VARIABLE: upstream})


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
    return Launch(command, Target(chat_url(port), bearer(LITELLM_KEY)), environment)


def portkey(upstream: str, directory: Path) -> Launch:
    """Portkey's open-source gateway on Node.js; it has neither keys nor budgets nor records."""
    port, home = free_port(), environments.node_environment("portkey")
    script = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    headers = {
        **bearer("x"),
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"{upstream}/v1",
    }
    node = shutil.which("node") or "node"
    command: list[str | Path] = [node, script, f"--port={port}", "--headless"]
    return Launch(command, Target(chat_url(port), headers), {"NODE_ENV": "production"})


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
    return Launch(command, Target(chat_url(port)), environment)


OURS: dict[str, Callable[[str, Path], Launch]] = {
    "remit": ours.remit,
    "remit-order": ours.with_order,
    "remit-budgets": ours.with_budgets,
    "remit-auto": ours.routed,
}
FLOORS: dict[str, Callable[[str, Path], Launch]] = {
    "recording": recording,
    "forwarding": forwarding,
    "proxy": bare_proxy,
}
OTHERS: dict[str, Callable[[str, Path], Launch]] = {
    "litellm": litellm,
    "portkey": portkey,
    "mlflow": mlflow,
}
PEERS = {**OURS, **FLOORS, **OTHERS}
