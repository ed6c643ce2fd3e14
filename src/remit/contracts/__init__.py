"""Prompt contracts and the packs they bind."""

from remit.contracts.context import required_context
from remit.contracts.contract import Boundary, PromptContract
from remit.contracts.folder import ContractError, RequiredContextError
from remit.contracts.loader import ContractLoader, parse_contract, parse_pack
from remit.contracts.pack import PromptPack, check_examples

__all__ = [
    "Boundary",
    "ContractError",
    "ContractLoader",
    "PromptContract",
    "PromptPack",
    "RequiredContextError",
    "check_examples",
    "parse_contract",
    "parse_pack",
    "required_context",
]
