"""Changes to single resources of Google Cloud, made before they are registered with the provider."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from cluster.config.section import Section
from cluster.config.validators.names import matching

_resource_type = matching(
    "gcp:[a-z0-9]+/[A-Za-z0-9]+:[A-Za-z0-9]+",
    "a type of resource of Google Cloud, e.g. gcp:compute/instance:Instance",
    "copy it from a preview",
)
"""Only the form: the provider's own classes say whether there is such a type."""


class Customize(Section):
    """Inputs to change or add, of the resources that a type and a name pattern match."""

    one_value: ClassVar[bool] = True

    type: Annotated[str, AfterValidator(_resource_type)] = Field(examples=["gcp:compute/instance:Instance"])
    """Type of the resources, as a preview shows it."""
    name: str = Field(default="*", min_length=1, examples=["*-login-*"])
    """Pattern of their names in the preview: `*` is any text, `?` one character, `[01]` one of these."""
    set: Mapping[str, Any] = Field(min_length=1, examples=[{"labels": {"team": "ml"}}])
    """Inputs, by their names in pulumi_gcp: a mapping is merged into what is there, a list or a single value replaces
    it, and null removes it."""
