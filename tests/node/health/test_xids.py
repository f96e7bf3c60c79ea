"""Xids, SXids and lost GPUs in the kernel log."""

import os
from pathlib import Path

import pytest
from health import outcome
from health.xids import XIDS, xids

from cluster.monitoring.alerts import FATAL_XIDS

GPU = "NVRM: Xid (PCI:0000:04:00):"
# Lines of real machines: leptonai/gpud 4a8de33, components/accelerator/nvidia, sxid/README.md (79, 20034), xid/kmsg.go
# (fallen off the bus without an Xid; 149) and its tests (145, 12028); NVIDIA/open-gpu-kernel-modules, issue 1150 (45).
# Others have the form of NVIDIA/DCGM 72fa3fe, dcgmlib/src/DcgmKmsgReader.cpp.
LINES = (
    f"{GPU} 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: GPU 0000:04:00.0: GPU has fallen off the bus.",
    r"NVRM: The NVIDIA GPU 0000:04:00.0\x0aNVRM: fallen off the bus and is not responding to commands.",
    "NVRM: GPU has fallen off the bus.",
    f"{GPU} 119, pid='<unknown>', name=<unknown>, Timeout after 6s of waiting for RPC",
    f"{GPU} 74, NVLink: fatal error detected on link 3(0x10000, 0x0)",
    f"{GPU} 94, pid='7', name=python, Contained: SM (0x1).",
    f"{GPU} 109, pid=7, name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT",
    f"{GPU} 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    f"{GPU} 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    f"{GPU} 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)",
    f"{GPU} 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    f"{GPU} 31, pid=9, name=python, Ch 00000008, MMU Fault",
    f"{GPU} 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
    f"{GPU} 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000 0x00000000)",
    f"{GPU} 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000)",
    f"{GPU} 150, an unknown form",
    *(f"{GPU} {number}, pid=1, name=python, error" for number in (48, 54, 151, 155, 156, 157, 167, 168, 169)),
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
    "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00",
    "NVRM: RmInitAdapter failed!",
)


class TestXids:
    """Records as /dev/kmsg has them."""

    def read(self, folder: Path, lines: list[str], before: dict[str, object]) -> outcome.Outcome:
        (folder / "kmsg").write_text("".join(f"{line}\n" for line in lines))
        (folder / "boot_id").write_text("b\n")
        return xids(before, folder / "kmsg", folder / "boot_id")

    def of(self, folder: Path, *texts: str, seconds: float = 1, since: int = -1) -> outcome.Outcome:
        """The outcome for these messages, `seconds` apart, of which those after number `since` are new."""
        lines = [f"3,{number},{int(number * seconds * 1e6)},-;{text}" for number, text in enumerate(texts)]
        return self.read(folder, lines, {"boot": "b", "sequence": since})

    def test_xids_of_a_broken_gpu_fail(self, tmp_path, reviewed):
        shown = {}
        for line in LINES:
            log = [f"3,7,1000,-;{line}", " SUBSYSTEM=pci", "6,8,2000,-;eth0: link up"]
            found = self.read(tmp_path, log, {"boot": "b"})
            assert found.get("place", {}) == {"boot": "b", "sequence": 8}
            shown[line] = f"{found['state']}{', certain' * bool(found.get('certain'))}: {found['text']}"
        reviewed("health/xids", shown)

    def test_only_new_xids_count(self, tmp_path):
        lines = [f"3,7,1000,-;{GPU} 79, GPU has fallen off the bus."]
        assert self.read(tmp_path, lines, {"boot": "b", "sequence": 7})["state"] == "ok"
        assert self.read(tmp_path, lines, {"boot": "b", "sequence": 6})["state"] == "failed"
        assert self.read(tmp_path, lines, {"boot": "another", "sequence": 99})["state"] == "failed"
        assert self.read(tmp_path, lines, {})["state"] == "ok", "the first run of all takes the place alone"

    def test_a_repeated_xid_has_another_text_each_time(self, tmp_path):
        """Else the history would take the next one for the last one."""
        line = f"{GPU} 94, pid='7', name=python, Contained: SM (0x1)."
        found = [self.of(tmp_path, *[line] * times, since=times - 2)["text"] for times in (1, 2, 3)]
        first = "Xid 94 (contained memory error) of GPU 0000:04:00, process 7"
        assert found == [first, f"{first}, 2 times", f"{first}, 3 times"]

    def test_a_lost_gpu_counts_once(self, tmp_path):
        found = self.of(tmp_path, *LINES[:4])
        assert found["text"] == "Xid 79 (the GPU has fallen off the bus) of GPU 0000:04:00"

    @pytest.mark.parametrize(
        ("beside", "seconds", "state"),
        [
            (f"{GPU} 94, pid='7', name=python, Contained: SM (0x1).", 1, "warning"),
            (f"{GPU} 63, pid='7', name=python, Row Remapper: New row marked for remapping", 1, "warning"),
            (f"{GPU} 94, pid='7', name=python, Contained: SM (0x1).", 3600, "failed"),
            ("NVRM: Xid (PCI:0000:05:00): 94, pid='7', name=python, Contained: SM (0x1).", 1, "failed"),
            (f"{GPU} 95, pid='7', name=python, Uncontained: LTC TAG", 1, "failed"),
            (f"{GPU} 64, Row Remapper: Failed to remap", 1, "failed"),
        ],
    )
    def test_a_contained_error_is_a_warning(self, tmp_path, beside, seconds, state):
        """WORKFLOW_XID_48 of NVIDIA's catalog; of 94 it says that other applications run on."""
        double = f"{GPU} 48, pid='7', name=python, An uncorrectable double bit error (DBE) has been detected"
        assert self.of(tmp_path, double, beside, seconds=seconds)["state"] == state

    def test_an_applications_xid_on_one_gpu_alone_is_a_warning_if_it_repeats(self, tmp_path):
        def faults(*where: tuple[str, int]) -> str:
            lines = (f"NVRM: Xid (PCI:0000:{bus}:00): 31, pid={pid}, name=python, MMU Fault" for bus, pid in where)
            return self.of(tmp_path, *lines)["state"]

        assert faults(("04", 1), ("04", 1), ("04", 1), ("04", 2)) == "ok"
        assert faults(("04", 1), ("04", 2), ("04", 3)) == "warning"
        assert faults(("04", 1), ("04", 2), ("04", 3), ("05", 4)) == "ok"

    def test_the_kernel_log_is_read(self):
        if os.geteuid():
            return
        found = xids({})
        assert found.get("place", {})["sequence"] > 0


def test_the_alert_is_of_the_xids_that_are_certain_faults_of_a_gpu():
    assert set(FATAL_XIDS) == {number for number, rule in XIDS.items() if rule.outcome_of is outcome.certain}
