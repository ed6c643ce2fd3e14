"""How contracts, packs and required context fail."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["ContractError", "RequiredContextError"]


class ContractError(RemitError):
    """A contract or pack cannot be used.

    Attributes:
        code: ``contract_not_found``, ``contract_schema_invalid``, ``prompt_pack_not_found`` or
            ``contract_changed`` (not installed, or not as it was installed).
    """

    def __init__(self, code: str, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


class RequiredContextError(ContractError):
    """Something that a contract requires is missing, or may not be read.

    Attributes:
        code: ``required_context_missing``.
    """

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__("required_context_missing", message, next_step=next_step)
