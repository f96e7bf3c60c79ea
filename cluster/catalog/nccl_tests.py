"""What the NCCL test is built from: a container image, and a version of nccl-tests."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ContainerImage:
    """One image of a registry."""

    registry: str
    name: str
    tag: str
    source: str

    @property
    def enroot(self) -> str:
        """As enroot names it."""
        return f"docker://{self.registry}#{self.name}:{self.tag}"

    @property
    def docker(self) -> str:
        """As apptainer and Docker name it."""
        return f"docker://{self.registry}/{self.name}:{self.tag}"

    @property
    def file_name(self) -> str:
        """Of the imported image, without its ending: as enroot calls it."""
        return f"{self.name.replace('/', '+')}+{self.tag}"


@dataclass(frozen=True, kw_only=True)
class NcclTests:
    """One version of nccl-tests."""

    version: str
    commit: str
    url: str
    collectives: tuple[str, ...]
    """Each is a program NAME_perf."""
    source: str


PYTORCH = ContainerImage(
    registry="nvcr.io",
    name="nvidia/pytorch",
    tag="24.04-py3",
    source="cluster-toolkit, examples/machine-learning/a3-megagpu-8g/nccl-tests/import_pytorch_container.sh; 18 GB",
)
NCCL_TESTS = NcclTests(
    version="2.13.11",
    commit="8dfeab9eb9bdfdf13503e71e1f33e7f8a208b540",
    url="https://github.com/NVIDIA/nccl-tests",
    collectives=(
        "all_gather", "all_reduce", "alltoall", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
        "sendrecv", "hypercube",
    ),
    # The version of the reference measurements of A3 Mega. From 2.16.8 on the warm-up covers more sizes, which changes
    # what small messages measure.
    source="github.com/NVIDIA/nccl-tests, tag v2.13.11 of 2024-10-24, src/Makefile (BIN_FILES_LIST)",
)  # fmt: skip
