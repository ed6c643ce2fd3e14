"""Prompt contracts and the packs they bind (SPEC 8.1)."""

from remit.contracts.contract import Boundary, ContractError, PromptContract
from remit.contracts.loader import ContractLoader
from remit.contracts.pack import PromptPack

__all__ = ["Boundary", "ContractError", "ContractLoader", "PromptContract", "PromptPack"]
