"""Prompt contracts and the packs they bind."""

from remit.contracts.context import required_context
from remit.contracts.contract import Boundary, PromptContract
from remit.contracts.folder import ContractError, RequiredContextError
from remit.contracts.language import fence
from remit.contracts.loader import ContractLoader, parse_contract, parse_pack
from remit.contracts.pack import PromptPack, check_examples, cut_sections

__all__ = [
    "Boundary",
    "ContractError",
    "ContractLoader",
    "PromptContract",
    "PromptPack",
    "RequiredContextError",
    "check_examples",
    "cut_sections",
    "fence",
    "parse_contract",
    "parse_pack",
    "required_context",
]
