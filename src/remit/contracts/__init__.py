"""Prompt contracts and the packs they bind."""

from remit.contracts.context import required_context
from remit.contracts.contract import Boundary, PromptContract
from remit.contracts.folder import ContractError
from remit.contracts.language import fence
from remit.contracts.loader import ContractLoader, parse_contract, parse_pack
from remit.contracts.pack import PromptPack, check_examples, cut_sections

__all__ = [
    "Boundary",
    "ContractError",
    "ContractLoader",
    "PromptContract",
    "PromptPack",
    "check_examples",
    "cut_sections",
    "fence",
    "parse_contract",
    "parse_pack",
    "required_context",
]

# Earlier names, for programs that catch them; they end with version 1.0.
RequiredContextError = ContractError
