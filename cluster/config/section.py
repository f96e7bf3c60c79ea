"""What all sections of the configuration have in common."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration: can't be changed once read, and refuses keys that it doesn't know."""

    one_value: ClassVar[bool] = False
    """Whether an edit of it is shown as one, because its keys mean nothing apart."""

    stand_in: ClassVar[Mapping[str, Any]] = {}
    """For a platform's own section: valid values, with which the rest of a file is checked where these are missing or
    wrong. No check may find anything about them."""

    @property
    def slurm_release(self) -> str | None:
        """For a platform's own section: Slurm's release, such as 25.11, where it follows from the section and not from
        the image."""
        return None

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)
