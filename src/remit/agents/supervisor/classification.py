"""The rule by which a turn uses the classification of its message; a package brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from remit.agents.supervisor.plan import PlanStep
from remit.kernel.errors import ConfigError
from remit.kernel.installation import InstalledFiles

_FILE = "HO2/documents/classification.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Treatment(_Part):
    """How a turn is answered whose message was classified so.

    Attributes:
        when: by name of a label, the values for which it holds; all of them have to.
        tools: whether the answer may use tools.
        note: what the model is told about the message; empty for nothing.
    """

    when: Mapping[str, Sequence[str]]
    tools: bool = True
    note: str = ""

    def applied_to(self, step: PlanStep) -> PlanStep:
        """Return the answering step; it keeps its tools if its acceptance demands one."""
        if self.tools or step.acceptance.get("tools_used"):
            return step
        return replace(step, tools=(), approve=())


class ClassificationRules(_Part):
    """Treatments, of which the first that fits holds."""

    rules: Sequence[Treatment] = ()

    @classmethod
    def installed(cls, files: InstalledFiles) -> Self:
        """Return the rules that a root's packages bring; none in a root of an earlier version.

        Raises:
            ConfigError: the file does not hold rules.
        """
        if _FILE not in files.paths("HO2/documents/"):
            return cls()
        try:
            return cls.model_validate_json(files.read(_FILE))
        except ValidationError as error:
            raise ConfigError(
                f"The rules of classification cannot be used: {error}",
                next_step=f"Correct {_FILE} in its package and install that as a new version.",
            ) from error

    def treatment(self, classification: Mapping[str, Any] | None) -> Treatment:
        """Return the treatment of a message; without a classification, the usual one."""
        labels = classification or {}
        for rule in self.rules:
            if all(labels.get(name) in values for name, values in rule.when.items()):
                return rule
        return Treatment(when={})
