"""The description of an agent that each of its sessions records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.agents import OutputType
from remit.agents.supervisor import DEFAULT_CRITERIA, PlanStep, thread_tools
from remit.agents.tools import Tool
from remit.contracts import ContractError, ContractLoader
from remit.kernel.canonical import sha256_hex
from remit.kernel.settings import EffectiveSettings, SupervisorSettings
from remit.ledger import content
from remit.packages import fitting

_OF_AN_AGENT = ("classify", "verify", "max_retries", "context_tokens")
_BY_CODE = thread_tools()  # The supervisor's own tools, which packages permit.


def agent_record(
    step: PlanStep,
    supervisor: SupervisorSettings,
    settings: EffectiveSettings,
    contracts: ContractLoader,
    own: Sequence[Tool],
    package_id: str,
    providers: Mapping[str, str],
    output: OutputType[Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata of an agent's ``SESSION_START``: ids, hashes, and texts as content.

    Nothing is written. The keys are ``settings_sha256`` and ``overrides`` (settings of the agent
    and the root that differ from the defaults), and only if they apply: ``package_id`` or else
    ``instructions`` (hash and text, as content), ``own_tools`` (digests by id),
    ``own_providers``, ``own_contracts`` (versions and hashes by id), ``output_schema_sha256``, and
    ``criteria`` (names of the quality gate's criteria, unless they are the default ones). A value
    above 8 KiB is content. Contracts that packages brought or that cannot be loaded are left out,
    and so are the supervisor's tools.

    Args:
        step: the plan step with which the agent answers.
        supervisor: settings of the agent's turns.
        settings: settings of the root.
        contracts: the loader of the agent's contracts.
        own: tools that the author gave by value.
        package_id: the package that brought the agent; empty for an agent made by a program.
        providers: class names of the program's own providers, keyed by provider id.
        output: the type of the answers; ``None`` for text.

    Raises:
        ChangedFileError: the table of installed files cannot be read.
    """
    limits = {
        "worker.turn_limit": step.turn_limit,
        "worker.timeout_s": step.timeout_seconds,
        "budget.work_order_tokens": step.token_budget,
    }
    ours = settings.over(
        {
            **{f"supervisor.{name}": value for name, value in supervisor if name in _OF_AN_AGENT},
            **{name: value for name, value in limits.items() if value},
        }
    )
    record: dict[str, Any] = {
        "settings_sha256": ours.sha256,
        "overrides": fitting(ours.changed),
    }
    if package_id:
        record["package_id"] = package_id
    elif text := step.input.get("instructions"):
        # A hash of what may name people is content, as the text itself is.
        record["instructions"] = content({"sha256": sha256_hex(text.encode()), "text": text})
    if tools := {tool.tool_id: tool.digest for tool in own if tool not in _BY_CODE}:
        record["own_tools"] = fitting(tools)
    if providers:
        record["own_providers"] = fitting(providers)
    if found := _own_contracts(step.contract_id, contracts):
        record["own_contracts"] = fitting(found)
    if output is not None and output.schema is not None:
        record["output_schema_sha256"] = sha256_hex(orjson.dumps(output.schema))
    criteria = sorted(name for name, on in {**DEFAULT_CRITERIA, **step.acceptance}.items() if on)
    if criteria != sorted(DEFAULT_CRITERIA):
        record["criteria"] = criteria
    return record


def _own_contracts(contract_id: str, contracts: ContractLoader) -> dict[str, dict[str, str]]:
    """Return contracts that no package brought, with versions and hashes, keyed by id.

    A contract that cannot be loaded is left out; the order that needs it reports the error.
    """
    found = {}
    for name in sorted({contract_id, *contracts.further_ids()}):
        try:
            contract = contracts.load(name)
            pack = contracts.load_pack(contract.prompt_pack_id)
        except ContractError:
            continue
        if not contract.package_id:
            found[name] = {
                "version": contract.version,
                "sha256": contract.digest,
                "prompt_pack_id": contract.prompt_pack_id,
                "prompt_pack_sha256": pack.digest,
            }
    return found
