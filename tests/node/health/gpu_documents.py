"""Documents of `nvidia-smi -q -x`, with their elements in the order of drivers 535 to 595.

Figures of H100, B200, GB300 and T4 are those of real machines with drivers 580 and 595: NVIDIA/k8s-test-infra 3b2b865d,
tests/e2e/go/assertions/nvidiasmi/testdata/hardware.
"""

from collections.abc import Mapping

from health.outcome import Outcome

SOUND: Mapping[str, str] = {
    "persistence_mode": "Enabled", "current_mig": "Disabled", "gpu_recovery_action": "None",
    "reset_required": "Requested functionality has been deprecated",
    "drain_and_reset_recommended": "Requested functionality has been deprecated", "current_link_width": "16x",
    "gpu_idle": "Active", "sw_power_cap": "Not Active", "sw_thermal_slowdown": "Not Active",
    "hw_slowdown": "Not Active", "total": "81559 MiB", "gpu_util": "0 %", "current_ecc": "Enabled",
    "current_power_limit": "700.00 W", "default_power_limit": "700.00 W", "sm_clock": "345 MHz",
    "max_sm_clock": "1980 MHz", "unrepairable_memory": "N/A", "gpu_temp_slow_tlimit_threshold": "-2 C",
    "sram_uncorrectable_parity": "0", "sram_uncorrectable_secded": "0",
    "dram_uncorrectable": "0", "sram_threshold_exceeded": "No", "retired_count": "N/A", "pending_retirement": "N/A",
    "remapped_row_unc": "0", "remapped_row_pending": "No", "remapped_row_failure": "No", "gpu_temp": "41 C",
    "gpu_temp_tlimit": "46 C", "gpu_temp_slow_threshold": "N/A", "memory_temp": "52 C",
    "gpu_temp_max_mem_threshold": "N/A", "state": "Completed", "status": "Success", "bandwidth": "N/A",
    "route_recovery_in_progress": "N/A", "route_unhealthy": "N/A", "access_timeout_recovery": "N/A",
    "incorrect_configuration": "N/A",
}  # fmt: skip
"""Of an H100 on a board with NVSwitches."""
B200 = {
    "persistence_mode": "Disabled", "total": "183359 MiB", "current_power_limit": "1000.00 W",
    "default_power_limit": "1000.00 W", "sm_clock": "120 MHz", "max_sm_clock": "1965 MHz", "gpu_temp": "39 C",
    "gpu_temp_tlimit": "49 C", "gpu_temp_slow_tlimit_threshold": "-3 C", "memory_temp": "39 C",
    "access_timeout_recovery": "False",
}  # fmt: skip
GB300 = {
    "total": "284208 MiB", "current_power_limit": "1400.00 W", "default_power_limit": "1400.00 W",
    "sm_clock": "120 MHz", "max_sm_clock": "2070 MHz", "bandwidth": "Full", "route_recovery_in_progress": "False",
    "route_unhealthy": "False", "access_timeout_recovery": "False", "incorrect_configuration": "None",
}  # fmt: skip
T4 = {
    "total": "15360 MiB", "current_power_limit": "70.00 W", "default_power_limit": "70.00 W", "sm_clock": "1590 MHz",
    "max_sm_clock": "1590 MHz", "current_mig": "N/A", "gpu_temp_slow_tlimit_threshold": "N/A",
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
    events = "".join(
        f"<clocks_event_reason_{name}>{has[name]}</clocks_event_reason_{name}>"
        for name in ("gpu_idle", "sw_power_cap", "hw_slowdown", "sw_thermal_slowdown")
    )
    retired = f"<{{0}}>{tags('retired_count')}</{{0}}>"
    return f"""
    <gpu id="00000000:{number + 4:02X}:00.0">
        <product_name>NVIDIA H100 80GB HBM3</product_name>
        {tags("persistence_mode")}<mig_mode>{tags("current_mig")}</mig_mode>
        <gpu_reset_status>{tags("reset_required", "drain_and_reset_recommended")}</gpu_reset_status>
        {tags("gpu_recovery_action")}
        <pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>{tags("current_link_width")}
        </link_widths></pci_gpu_link_info></pci>
        <clocks_event_reasons>
            {events}
        </clocks_event_reasons>
        <fb_memory_usage>{tags("total")}</fb_memory_usage>
        <utilization>{tags("gpu_util")}</utilization>
        <ecc_mode>{tags("current_ecc")}</ecc_mode>
        <ecc_errors>
            <volatile><sram_correctable>3</sram_correctable>
            {tags("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")}</volatile>
            <aggregate><dram_uncorrectable>7</dram_uncorrectable>{tags("sram_threshold_exceeded")}</aggregate>
            {tags("unrepairable_memory")}
        </ecc_errors>
        <retired_pages>{retired.format("multiple_single_bit_retirement")}{retired.format("double_bit_retirement")}
        {tags("pending_retirement")}</retired_pages>
        <remapped_rows><remapped_row_corr>0</remapped_row_corr>
        {tags("remapped_row_unc", "remapped_row_pending", "remapped_row_failure")}</remapped_rows>
        <temperature>
        {tags("gpu_temp", "gpu_temp_tlimit", "gpu_temp_slow_threshold", "gpu_temp_slow_tlimit_threshold")}
        {tags("memory_temp", "gpu_temp_max_mem_threshold")}
        </temperature>
        <gpu_power_readings>{tags("current_power_limit", "default_power_limit")}</gpu_power_readings>
        <clocks>{tags("sm_clock")}</clocks><max_clocks><sm_clock>{has["max_sm_clock"]}</sm_clock></max_clocks>
        <fabric>{tags("state", "status")}<health>{tags("bandwidth", "route_recovery_in_progress", "route_unhealthy")}
        {tags("access_timeout_recovery", "incorrect_configuration")}</health></fabric>
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
