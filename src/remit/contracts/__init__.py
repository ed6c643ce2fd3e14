"""Contracts: the prompt contracts and prompt packs that govern one call.

The room owns their schema, their loading from installed files, and the rendering of prompts. The
room calls no model and reads no ledger.

Invariants: a contract that does not parse never loads in part; a rendered prompt holds exactly the
context that its contract requires.

Start reading in :mod:`remit.contracts.loader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.contracts.folder import ContractError
from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.contracts.contract import Boundary, PromptContract, precedence
    from remit.contracts.contract_context import required_context
    from remit.contracts.loader import ContractLoader, parse_contract, parse_pack
    from remit.contracts.pack import PromptPack, check_examples, cut_sections
    from remit.contracts.template_language import fence
else:
    __getattr__ = lazy_names(__name__)

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
    "precedence",
    "required_context",
]

# Earlier names, for programs that catch them; they end with version 1.0.
RequiredContextError = ContractError
