"""What all sections of the configuration have in common."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration: can't be changed once read, and refuses keys that it doesn't know."""

    one_value: ClassVar[bool] = False
    """Whether an edit of it is told as one, because its keys mean nothing apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)
