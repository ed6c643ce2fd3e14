"""The use of a message's classification: rules of packages, and the treatment that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from remit.agents.supervisor.plan import PlanStep
from remit.kernel.errors import ConfigError
from remit.kernel.installed_files import InstalledFiles

_FILE = "HO2/documents/classification.json"


class Treatment(BaseModel, extra="forbid", frozen=True):
    """The treatment of messages with a certain classification.

    Immutable, read from JSON; another key, or a value of another type, raises pydantic's
    ValidationError.

    Attributes:
        when: accepted values, keyed by label; every label must match.
        tools: True if the answer may use tools.
        note: text about the message for the model; empty for none.
    """

    when: Mapping[str, Sequence[str]]
    tools: bool = True
    note: str = ""

    def applied_to(self, step: PlanStep) -> PlanStep:
        """Return the answering step; without its tools if the treatment forbids them.

        The step keeps its tools if its acceptance demands one (``tools_used``). Otherwise the same
        step is returned.

        Args:
            step: the agent's answering step.
        """
        if self.tools or step.acceptance.get("tools_used"):
            return step
        return replace(step, tools=(), approve=())


class ClassificationRules(BaseModel, extra="forbid", frozen=True):
    """Treatments, of which the first match applies.

    Immutable, read from JSON; another key raises pydantic's ValidationError. :meth:`installed`
    reads the file of the root's packages.

    Attributes:
        rules: the treatments, in the order of their precedence.
    """

    rules: Sequence[Treatment] = ()

    @classmethod
    def installed(cls, files: InstalledFiles) -> Self:
        """Return the rules of a root's packages; no rules if no package installed the file.

        Args:
            files: the installed files of the root, from which ``HO2/documents/classification.json``
                is read.

        Raises:
            ConfigError: the file does not contain rules.
            ChangedFileError: the file is missing or differs from the installed content, or the
                table of owners cannot be read.
        """
        if _FILE not in files.paths("HO2/documents/"):
            return cls()
        try:
            return cls.model_validate_json(files.read(_FILE))
        except ValidationError as error:
            raise ConfigError(
                f"The classification rules are invalid: {error}",
                next_step=f"Correct {_FILE} in its package and install a new version of it.",
            ) from error

    def treatment(self, classification: Mapping[str, Any] | None) -> Treatment:
        """Return the treatment of a message; the default without a classification or match.

        The default allows tools and adds no note.

        Args:
            classification: values keyed by label; None without one.
        """
        labels = classification or {}
        for rule in self.rules:
            if all(labels.get(name) in values for name, values in rule.when.items()):
                return rule
        return Treatment(when={})
