"""Scripts that slurmd runs as root on a node, before and after a job there."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.impact import Reconfigure
from cluster.config.section import Section
from cluster.config.types import PartitionName, ScriptFile, ScriptName, ScriptText, ScriptUrl, Sha256
from cluster.findings import Refused

SCRIPTS = Reconfigure("holds for jobs that begin, or end, from then on; what runs already is left alone")


class Sourced(Section):
    """A script of one's own; exactly one of file, url and text says what is in it."""

    EXAMPLE: ClassVar[str]
    """One as it may be written, without what says where it comes from."""

    name: ScriptName
    file: ScriptFile | None = None
    """Path of the script here, from the project's folder or from the root; read whenever `up` runs."""
    url: ScriptUrl | None = None
    """Where the machine downloads it from; needs sha256."""
    text: ScriptText | None = None
    """The script itself, with its #! line."""
    sha256: Sha256 | None = None
    """SHA-256 of what stands at url; anything else is refused before it runs."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        refuse_unpinned(self.url, self.sha256)
        given = [key for key in ("file", "url", "text") if getattr(self, key) is not None]
        if len(given) != 1:
            raise Refused(
                f"exactly one of file, url and text, e.g. {self.EXAMPLE}",
                f"keep one of {' and '.join(given)}" if given else "say what is in it",
            )
        return self


class Script(Sourced):
    """A script that slurmd runs as root on each node of a job; exactly one of file, url and text says what is in it."""

    EXAMPLE = "{name: 10-gpu-check, file: scripts/gpu-check.sh}"

    name: ScriptName = Field(examples=["10-gpu-check"])
    """File name; scripts of one place run in the order of their names."""
    on: tuple[Literal["prolog", "epilog"], ...] = ("prolog",)
    """When it runs: before a job, after it, or both; SLURM_SCRIPT_CONTEXT tells it which."""

    @model_validator(mode="after")
    def _at_some_time(self) -> Self:
        if not self.on or len(set(self.on)) < len(self.on):
            raise Refused(
                "prolog, epilog or both, once each, e.g. on: [prolog, epilog]",
                "remove the second" if self.on else "remove `on` for the default, prolog",
            )
        return self


class Rxdm(Section):
    """The prolog of A3 Mega nodes: it installs the NCCL plugin and starts the receive data path manager for jobs on
    two or more nodes, and is patched for Ubuntu 22.04 where its version needs that. Default source: the version
    that goes with the driver of the image."""

    partitions: tuple[PartitionName, ...] = Field(min_length=1, examples=[["a3mega"]])
    """Partitions of A3 Mega nodes, for whose jobs it runs as prolog and as epilog."""
    file: ScriptFile | None = None
    """Path of another version here, from the project's folder or from the root."""
    url: ScriptUrl | None = None
    """Where the controller downloads another version from; needs sha256."""
    sha256: Sha256 | None = None
    """SHA-256 of what stands at url."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        refuse_unpinned(self.url, self.sha256)
        if self.file and self.url:
            raise Refused("file or url, or neither for the default version", "remove one of them")
        return self


def refuse_unpinned(url: str | None, sha256: str | None) -> None:
    """What an address leads to can change at any time; a script that runs as root everywhere may not."""
    if url and not sha256:
        raise Refused(
            "sha256 beside url, e.g. {url: https://example.org/check.sh, sha256: 64 of 0-9 and a-f}",
            "download it, read it, and add what `sha256sum` prints as sha256",
        )
    if sha256 and not url:
        raise Refused("sha256 beside url only", "remove sha256, or give the script's address as url")
