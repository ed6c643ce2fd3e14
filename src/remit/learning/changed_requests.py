"""The request that a recorded exchange becomes under a change of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.contracts import PromptContract, cut_sections
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest
from remit.kernel.installation import InstalledFiles
from remit.learning.exchanges import terms_of
from remit.ledger import LedgerClient, LedgerEntry

_AGENT = "replay"
_TEMPLATE = ("{{", "{%", "{#")


class ChangedRequests:
    """Requests that repeat recorded exchanges under changed files or with another model.

    The ledger does not hold the values of a prompt's variables separately. A changed section must
    therefore be plain text before and after, or be extended by plain text at its end.

    Args:
        installed: the installed files, with the packs of recorded prompts.
        contract: the present contract.
        files: changed files by path, such as those of ``Change.made``; a contract among them
            replaces ``contract``.
        model: provider and model to ask; ``None`` for those of the contract, else of the exchange.

    Raises:
        ContractError: a changed contract is not valid.
    """

    def __init__(
        self, ledger: LedgerClient, installed: InstalledFiles, contract: PromptContract,
        files: Mapping[str, bytes], model: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._installed = installed
        self._model = model
        self._pack = ""
        for path, data in files.items():
            if path.startswith("HO1/contracts/"):
                contract = PromptContract.parse(data, path)
            elif path.startswith("HO1/prompt_packs/"):
                self._pack = data.decode()
        self._contract = contract

    def __call__(self, exchange: LedgerEntry) -> PromptRequest:
        """Return the changed request of an exchange.

        No call is made.

        Args:
            exchange: a recorded ``EXCHANGE`` with its prompt.

        Raises:
            InvalidInputError: the change cannot be applied to this prompt: its pack is not
                installed, sections differ, or the changed section has variables.
        """
        data, contract = exchange.metadata, self._contract
        prompt = data["prompt"]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if self._pack:
            messages = self._changed(exchange, messages)
        limits = contract.boundary
        provider_id, model_id = self._model or (
            limits.provider_id or self._asked(exchange),
            limits.model_id or str(data["model_id"]),
        )
        return PromptRequest(
            "", contract.prompt_pack_id, contract.contract_id, _AGENT, "RESIDENT",
            contract.framework_id, contract.package_id, "", tier="ho1", messages=messages,
            provider_id=provider_id, model_id=model_id, max_tokens=limits.max_tokens,
            temperature=limits.temperature, output_schema=contract.output_schema,
            structured_output=None if data.get("tools") else limits.structured_output,
            tools=data.get("tools"), contract_version=contract.version,
            **terms_of(self._ledger, exchange),
        )  # fmt: skip

    def _asked(self, exchange: LedgerEntry) -> str:
        """Return the provider of an exchange.

        The ``EXCHANGE`` names it only if the request did not; else the ``DISPATCH`` does.
        """
        if named := exchange.metadata.get("provider_id"):
            return str(named)
        reason = self._ledger.read(exchange.metadata["dispatch_entry_id"]).reason
        return reason.removeprefix("Dispatching to ").partition("/")[0]

    def _changed(self, exchange: LedgerEntry, messages: Any) -> list[dict[str, Any]]:
        name = next(iter(exchange.prompts_used), "")
        paths = list(self._installed.paths(f"HO1/prompt_packs/{name}."))
        if not paths:
            raise _cannot(exchange, f"its prompt pack {name} is not installed")
        old = _sections(self._installed.read(paths[0]).decode())
        new = _sections(self._pack)
        made = [dict(message) for message in messages]
        # The old prompt had no system message.
        if len(new) == len(old) + 1 and new[0][0] == "system":
            made.insert(0, {"role": "system", "content": new.pop(0)[1]})
        if [role for role, _ in old] != [role for role, _ in new]:
            raise _cannot(exchange, "the prompt has other sections")
        for (role, before), (_, after) in zip(old, new, strict=True):
            if before == after:
                continue
            gained = after.removeprefix(before) if after.startswith(before) else ""
            for message in made:
                text = message["content"]
                if message["role"] != role or not isinstance(text, str):
                    continue
                if text == before and not _fills(after):
                    message["content"] = after
                    break
                if gained and not _fills(gained):
                    message["content"] = text + gained
                    break
            else:
                raise _cannot(exchange, f"the values in its [{role}] section are not recorded")
        return made


def _sections(text: str) -> list[tuple[str, str]]:
    return [(role, source.strip()) for role, _, source in cut_sections(text)]


def _fills(text: str) -> bool:
    return any(mark in text for mark in _TEMPLATE)


def _cannot(exchange: LedgerEntry, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{exchange.id} cannot be asked again under this change: {why}.",
        next_step="Change the prompt by additions, or change sections without variables.",
    )
