"""Fabrics: the networks of the GPUs of different machines. One object has all differences between them.

Sources: cluster-toolkit v1.95.0, examples/machine-learning/a3-megagpu-8g (TCPXO), a3-ultragpu-8g and a4-highgpu-8g
(RoCE with gIB); nebius-solutions-library, soperator/test (InfiniBand);
cloud.google.com/compute/docs/gpus/gpu-network-bandwidth (NICs and their rates).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cluster.catalog.nccl import PYTORCH, ContainerImage


@dataclass(frozen=True, kw_only=True)
class LineRate:
    """The rate of a machine's NICs for its GPUs."""

    nics: int
    gbps: int
    """Gbit/s of each NIC."""
    source: str

    @property
    def nic(self) -> float:
        """GB/s of one NIC."""
        return self.gbps / 8

    @property
    def total(self) -> float:
        """GB/s of all."""
        return self.nics * self.nic


@dataclass(frozen=True, kw_only=True, eq=False)
class Fabric:
    """A network of GPUs; compared by identity."""

    name: str
    """The name in messages."""
    key: str = ""
    """The name in an image's content and in impacts; empty if images have nothing for it."""
    set_up: bool = True
    """True if this program can set it up. Other machines are refused, since their GPUs would have no network."""
    # The machine
    nics: int = 0
    """Number of NICs for the fabric alone, if they are in networks of the stack."""
    nic_names: tuple[str, ...] = ()
    """Names of these NICs in the machines' images; empty if they are not known."""
    host_nics: tuple[str, ...] = ("",)
    """Names of the NICs for other traffic, the machine's first one first; empty if they depend on the image."""
    gbps: int = 0
    """Gbit/s of each NIC of the fabric."""
    rate_source: str = ""
    apertures: bool = False
    """True if each GPU has an aperture device for access to its memory."""
    nic_type: str = "GVNIC"
    """Compute Engine's type of these NICs."""
    # Networks
    profile: str = ""
    """Network profile, after the zone's name: its NICs are in one network with this profile, which has a subnetwork for
    each of them. Empty: each NIC is in a network of its own."""
    mtu: int | None = None
    """Bytes: MTU of the networks of these NICs."""
    system_mtu: int = 8244
    """Bytes: MTU of the network of a node's first NIC."""
    # The image, and what nodes run
    image_steps: tuple[str, ...] = ()
    """Steps of scripts/image for nodes with it."""
    image_parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of these steps; {name} stands for that field of the image's recipe."""
    rxdm: bool = False
    """True if the rxdm prolog (`slurm.rxdm`) must run before jobs on several nodes."""
    # Jobs
    environment: tuple[str, ...] = ("sockets",)
    """Files of scripts/jobs/environment that env.sh has for nodes with it. env.sh runs the function _hpc_NAME of the
    last one."""
    container: ContainerImage = PYTORCH
    """The image in which nccl-tests is built and run."""
    smallest: str = "8M"
    """The smallest message of the NCCL test, in the form of nccl-tests."""
    iterations: int | None = None
    """Timed iterations for each size; None: nccl-tests' default."""
    one_node: str = "is not on these nodes"
    """The reason why it can't be measured on one node; empty if it can."""
    inactive: str = "check the network of the GPUs"
    """The advice if a measurement shows that it is not in use."""

    @property
    def short(self) -> str:
        """The name without GPUDirect: TCPXO."""
        return self.name.removeprefix("GPUDirect").strip("- ") or self.name

    def line_rate(self, gpus: int) -> LineRate | None:
        """Return the rate of its NICs on a machine with that number of GPUs; None without NICs."""
        return LineRate(nics=self.nics or gpus, gbps=self.gbps, source=self.rate_source) if self.gbps else None


_GOOGLE = "cloud.google.com/compute/docs/gpus/gpu-network-bandwidth, read 2026-11-22"
_NDR = "ConnectX-7, NDR: one 400 Gbit/s port for each GPU (docs.nebius.com/compute/clusters/gpu: 3.2 Tbit/s a host)"
_XDR = "ConnectX-8: one 800 Gbit/s port for each GPU (docs.nvidia.com, reference architectures of HGX B300 and GB300)"

_POD = ("eth0",)
"""The environment of a pod (nebius-solutions-library, soperator/test/mlperf-gpt3, start.sh)."""

NONE = Fabric(name="A network for GPUs")
"""GPUs reach each other by the machine's own NIC, through the kernel."""
NONE_IN_PODS = replace(NONE, host_nics=_POD)

TCPX = Fabric(
    name="GPUDirect-TCPX",
    set_up=False,
    nics=4,
    gbps=200,
    rate_source=_GOOGLE,
    mtu=8244,
    inactive="check NCCL's variables of the job, and the receive data path manager on every node",
)

TCPXO = Fabric(
    name="GPUDirect-TCPXO",
    key="tcpxo",
    nics=8,
    # NCCL_FASTRAK_IFNAME and NCCL_FASTRAK_CTRL_DEV of nccl-tests/run-nccl-tests.sh. With other names NCCL finds no
    # fabric (pull request 2763: an image baked without local SSDs renames them).
    nic_names=("enp6s0", "enp7s0", "enp13s0", "enp14s0", "enp134s0", "enp135s0", "enp141s0", "enp142s0"),
    host_nics=("enp0s12",),
    gbps=200,
    rate_source=_GOOGLE,
    apertures=True,
    mtu=8896,  # the largest that Google Cloud has; TCPXO needs 8244 at least (the blueprints)
    system_mtu=8244,  # what the blueprints give a node's first NIC
    image_steps=("26-dmabuf", "28-aperture", "54-network"),
    image_parameters={"TCPXO": "1"},
    rxdm=True,
    environment=("plugin", "tcpxo"),
    iterations=200,
    one_node="runs for jobs on two nodes and more",
    inactive="check that the job reads the cluster's env.sh and passes NCCL's variables and /var/lib/tcpxo/lib64 into "
    "the container, and that the prolog started the receive data path manager on every node",
)

ROCE = Fabric(
    name="GPUDirect RDMA",
    key="gib",
    nics=8,
    # NCCL_SOCKET_IFNAME of nccl-tests/run-nccl-tests.sh.
    host_nics=("enp0s19", "enp192s20"),
    gbps=400,
    rate_source=_GOOGLE,
    nic_type="MRDMA",
    profile="vpc-roce",
    mtu=8896,
    system_mtu=8896,
    image_steps=("27-gib", "54-network"),
    image_parameters={"GIB": "{gib}", "NCCL": "{nccl}"},
    environment=("plugin", "gib"),
    # The blueprint takes 24.09, whose CUDA has no code for B200.
    container=replace(PYTORCH, tag="25.01-py3", source="docs.nvidia.com, PyTorch release notes: 25.01 has CUDA 12.8"),
    smallest="256M",
    iterations=200,
    one_node="is measured between nodes",
    inactive="check that the nodes have their RDMA devices (`ibv_devinfo`), that the job reads the cluster's env.sh, "
    "and that it passes NCCL's variables and /usr/local/gib into the container",
)
"""RDMA over Converged Ethernet on ConnectX NICs, with gIB, Google's plugin for NCCL."""

INFINIBAND = Fabric(
    name="InfiniBand",
    host_nics=_POD,
    gbps=400,
    rate_source=_NDR,
    environment=("infiniband",),
    smallest="512M",
    one_node="",
    inactive="check that the nodes have their InfiniBand devices (`ibstat`) and NCCL_IB_HCA names them",
)
"""The cloud sets it up: nodes join a GPU cluster, and their NICs are in no network of the stack."""

INFINIBAND_XDR = replace(INFINIBAND, gbps=800, rate_source=_XDR)

FABRICS = (NONE, NONE_IN_PODS, TCPX, TCPXO, ROCE, INFINIBAND, INFINIBAND_XDR)
