"""Documents of `nvidia-smi -q -x`, with their elements in the order of drivers 535 to 595."""

from collections.abc import Mapping

from health.outcome import Outcome

SOUND: Mapping[str, str] = {
    "persistence_mode": "Enabled", "gpu_recovery_action": "None", "current_link_width": "16x",
    "hw_slowdown": "Not Active", "sram_uncorrectable_parity": "0", "sram_uncorrectable_secded": "0",
    "dram_uncorrectable": "0", "sram_threshold_exceeded": "No", "retired_count": "N/A", "pending_retirement": "N/A",
    "remapped_row_unc": "0", "remapped_row_pending": "No", "remapped_row_failure": "No", "gpu_temp": "41 C",
    "gpu_temp_tlimit": "46 C", "gpu_temp_slow_threshold": "N/A", "memory_temp": "52 C",
    "gpu_temp_max_mem_threshold": "95 C", "state": "Completed", "status": "Success",
}  # fmt: skip
"""Of an H100 on a board with NVSwitches."""
T4 = {
    "retired_count": "0", "pending_retirement": "No", "remapped_row_unc": "N/A", "remapped_row_pending": "N/A",
    "remapped_row_failure": "N/A", "gpu_temp_tlimit": "N/A", "gpu_temp_slow_threshold": "93 C", "memory_temp": "N/A",
    "gpu_temp_max_mem_threshold": "N/A", "state": "N/A", "status": "N/A", "sram_threshold_exceeded": "N/A",
}  # fmt: skip


def failed(found: dict[str, Outcome]) -> dict[str, str]:
    """Return the texts of failed checks, by kind."""
    return {kind: result["text"] for kind, result in found.items() if result["state"] == "failed"}


def gpu_element(number: int, **changed: str) -> str:
    """Return the element of a sound GPU with these changes."""
    has = {**SOUND, **changed}
    tags = lambda *names: "".join(f"<{name}>{has[name]}</{name}>" for name in names)  # noqa: E731
    retired = f"<{{0}}>{tags('retired_count')}</{{0}}>"
    return f"""
    <gpu id="00000000:{number + 4:02X}:00.0">
        <product_name>NVIDIA H100 80GB HBM3</product_name>
        {tags("persistence_mode", "gpu_recovery_action")}
        <pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>{tags("current_link_width")}
        </link_widths></pci_gpu_link_info></pci>
        <clocks_event_reasons>
            <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
            <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
            <clocks_event_reason_hw_slowdown>{has["hw_slowdown"]}</clocks_event_reason_hw_slowdown>
        </clocks_event_reasons>
        <ecc_errors>
            <volatile><sram_correctable>3</sram_correctable>
            {tags("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")}</volatile>
            <aggregate><dram_uncorrectable>7</dram_uncorrectable>{tags("sram_threshold_exceeded")}</aggregate>
        </ecc_errors>
        <retired_pages>{retired.format("multiple_single_bit_retirement")}{retired.format("double_bit_retirement")}
        {tags("pending_retirement")}</retired_pages>
        <remapped_rows><remapped_row_corr>0</remapped_row_corr>
        {tags("remapped_row_unc", "remapped_row_pending", "remapped_row_failure")}</remapped_rows>
        <temperature>
        {tags("gpu_temp", "gpu_temp_tlimit", "gpu_temp_slow_threshold", "memory_temp", "gpu_temp_max_mem_threshold")}
        </temperature>
        <fabric>{tags("state", "status")}</fabric>
    </gpu>"""


def document(*gpus: str) -> str:
    """Return the document of these GPUs, by default two sound ones."""
    body = "".join(gpus or (gpu_element(0), gpu_element(1)))
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
    <driver_version>570.133.20</driver_version>{body}
</nvidia_smi_log>
"""
