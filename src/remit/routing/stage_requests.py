"""Requests of pipeline stages and judges, made from installed contracts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remit.contracts import ContractLoader
from remit.kernel.exchange import PromptRequest


class StagePrompts:
    """Renders the prompt packs of installed contracts, in their newest versions.

    Args:
        contracts: loads contracts and packs.
    """

    def __init__(self, contracts: ContractLoader) -> None:
        self._contracts = contracts

    def check(self, contract_id: str) -> None:
        """Check that a contract and its prompt pack can be used.

        Raises:
            ContractError: the contract or its pack is missing or invalid.
        """
        self._contracts.load_pack(self._contracts.load(contract_id).prompt_pack_id)

    def request(
        self, base: PromptRequest, contract_id: str, variables: Mapping[str, Any]
    ) -> PromptRequest:
        """Return ``base`` with the prompt, schemas and limits of a contract, and without tools.

        The smaller ``max_tokens`` of both applies. The client's body and headers are removed too.

        Args:
            base: the request.
            contract_id: the contract.
            variables: values for the prompt pack.

        Raises:
            ContractError: the contract or its pack is missing, or cannot be rendered.
        """
        contract = self._contracts.load(contract_id)
        pack = self._contracts.load_pack(contract.prompt_pack_id)
        boundary = contract.boundary
        return replace(
            base,
            prompt="",
            messages=[dict(message) for message in pack.render(variables)],
            prompt_pack_id=contract.prompt_pack_id,
            contract_id=contract.contract_id,
            framework_id=contract.framework_id,
            package_id=contract.package_id,
            max_tokens=min(base.max_tokens or boundary.max_tokens, boundary.max_tokens),
            temperature=boundary.temperature,
            structured_output=boundary.structured_output,
            input_schema=contract.input_schema,
            output_schema=contract.output_schema,
            template_variables=variables,
            tools=None,
            body=None,
            headers=None,
        )
