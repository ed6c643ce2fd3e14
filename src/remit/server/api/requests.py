"""The forms of requests of routes without an operation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

from remit.operations.results import Flag, Page

# A URL has no null: a value is given or left out.
_Text = Annotated[str | None, WithJsonSchema({"type": "string"})]


class PriceQuery(Page):
    """Conditions on prices; all must hold.

    `provider` and `model` select prices; `own` leaves out shipped ones.
    """

    provider: _Text = None
    model: _Text = Field(None, description="Name of a model, or a pattern such as `gpt-4o*`.")
    own: Flag = Field(False, description="Return only prices set by the operator.")
