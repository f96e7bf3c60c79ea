"""What dcgm-exporter collects on nodes with GPUs, as its file of fields, and how it is started.

Names are DCGM's own (dcgmlib/dcgm_fields.h), in the form that DCGM 4.5 and releases before have; later ones keep them
as aliases. Units are those of DCGM: MiB, W, mJ, degrees Celsius, nanoseconds.
"""

from cluster.config.cluster import ClusterConfig
from cluster.roster import has_gpus
from scripts.node.interface import GpuExporter

PORT = 9400
FIELDS: tuple[tuple[str, str, str], ...] = (
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Share of time with a kernel on the GPU (%)"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time with the graphics or compute engine active (0 to 1)"),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Share of cycles with a warp on a multiprocessor (0 to 1)"),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "Warps on a multiprocessor as a share of the most (0 to 1)"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles with the tensor pipe active (0 to 1)"),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles with the memory interface active (0 to 1)"),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Bytes sent over PCIe in a second"),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Bytes received over PCIe in a second"),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "Bytes sent over NVLink in a second"),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "Bytes received over NVLink in a second"),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (MiB)"),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Memory that is free (MiB)"),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power (W)"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded (mJ)"),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU (C)"),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the memory (C)"),
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the multiprocessors (MHz)"),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Why clocks are low (bit mask)"),
    ("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Time with lower clocks because of power (ns)"),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Time with lower clocks because of heat (ns)"),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last Xid"),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected ECC errors since the driver was loaded"),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrectable ECC errors since the driver was loaded"),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped because of uncorrectable errors"),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether a row waits for the next reset to be remapped"),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether a row could not be remapped"),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Repeated transfers over PCIe"),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "Checksum errors of NVLinks"),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "Repeated transfers over NVLinks"),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "Recoveries of NVLinks"),
)
"""Field, its kind for Prometheus, and a help text without a comma."""


def exporter(config: ClusterConfig) -> GpuExporter | None:
    """Arguments and fields of dcgm-exporter; None where the stack has no metrics or no GPUs.

    It asks the host engine that `dcgmi` asks too: profiling fields have one reader at a time. Without --no-hostname it
    would name that engine's host, localhost.
    """
    if config.monitoring is None or not has_gpus(config):
        return None
    interval = config.monitoring.interval_seconds * 1000
    return {
        "arguments": f"--address :{PORT} --remote-hostengine-info localhost:5555 --no-hostname "
        f"--collect-interval {interval}",
        "fields": [f"{name}, {kind}, {text}" for name, kind, text in FIELDS],
    }
