"""A kind of bucket that can hold the state of stacks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from cli.backends.records import Record
from cli.backends.s3_url import Version
from components.environment import Environment


class Done(str, Enum):
    """What a step did, or would do."""

    FOUND = "found"
    CREATED = "created"
    DELETED = "deleted"
    TO_CREATE = "to create"
    TO_DELETE = "to delete"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of `./hpc backend init`, as it is reported."""

    what: str
    """Kind and name, such as `bucket pulumi-slurm-...`."""
    done: Done
    detail: str = ""

    @property
    def changes(self) -> bool:
        """Whether it changed something, or would."""
        return self.done is not Done.FOUND


class Backend(ABC):
    """One bucket. Errors, those of the cloud's API among them, say what was refused, why and what to do."""

    kind: ClassVar[str]
    """As in `./hpc backend init KIND`."""
    title: ClassVar[str]
    """As users read it."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @abstractmethod
    def prepare(self, *, dry_run: bool) -> Iterator[Step]:
        """Find or create all that the bucket needs, step by step, and keep the record. With `dry_run` nothing is
        written anywhere. A second run changes nothing, and one that follows an interrupted run completes it."""

    @abstractmethod
    def renew(self) -> str:
        """Renew credentials that have expired, or will soon; says so in one line. Empty: nothing had to be done."""

    @abstractmethod
    def environment(self, cli: Version) -> Environment:
        """What that version of the Pulumi CLI needs to reach the bucket, PULUMI_BACKEND_URL among it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all variables that `environment` may set."""
        return ("PULUMI_BACKEND_URL",)
