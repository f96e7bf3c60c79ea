"""Xids of NVIDIA's driver in the kernel's log."""

import os
from pathlib import Path

import pytest
from health import gpu, outcome


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that is no container."""
    monkeypatch.setattr(outcome, "CONTAINER", tmp_path / "none")


class TestXids:
    """Records as /dev/kmsg has them."""

    @pytest.mark.parametrize(
        ("line", "state", "text"),
        [
            ("NVRM: Xid (PCI:0000:04:00): 79, pid=1122, name=python, GPU has fallen off the bus.", "failed",
             "Xid 79 (the GPU has fallen off the bus) of GPU 0000:04:00, process 1122"),
            ("NVRM: Xid (PCI:0000:04:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s of waiting for RPC",
             "failed", "Xid 119 (GSP RPC timeout) of GPU 0000:04:00"),
            ("NVRM: Xid (PCI:0000:04:00): 74, NVLink: fatal error detected on link 3(0x10000, 0x0)", "failed",
             "Xid 74 (NVLink error) of GPU 0000:04:00"),
            ("NVRM: Xid (PCI:0000:04:00): 94, pid='7', name=python, Contained: SM (0x1).", "warning",
             "Xid 94 (contained memory error) of GPU 0000:04:00, process 7"),
            ("NVRM: Xid (PCI:0000:04:00): 31, pid=9, name=python, Ch 00000008, MMU Fault", "ok",
             "1 Xids, none of a broken GPU"),
            ("NVRM: GPU 0000:04:00.0: RmInitAdapter failed!", "ok", "0 Xids, none of a broken GPU"),
        ],
    )  # fmt: skip
    def test_those_of_a_broken_gpu_fail(self, tmp_path, line, state, text):
        found = self.after(
            tmp_path, [f"3,7,1000,-;{line}", " SUBSYSTEM=pci", "6,8,2000,-;eth0: link up"], {"boot": "b"}
        )
        assert (found["state"], found["text"], found.get("place", {})) == (state, text, {"boot": "b", "sequence": 8})

    def test_only_new_ones_count(self, tmp_path):
        lines = ["3,7,1000,-;NVRM: Xid (PCI:0000:04:00): 79, GPU has fallen off the bus."]
        assert self.after(tmp_path, lines, {"boot": "b", "sequence": 7})["state"] == "ok"
        assert self.after(tmp_path, lines, {"boot": "b", "sequence": 6})["state"] == "failed"
        assert self.after(tmp_path, lines, {"boot": "another", "sequence": 99})["state"] == "failed"
        assert self.after(tmp_path, lines, {})["state"] == "ok", "the first run of all takes the place alone"

    def after(self, folder: Path, lines: list[str], before: dict[str, object]) -> outcome.Outcome:
        (folder / "kmsg").write_text("".join(f"{line}\n" for line in lines))
        (folder / "boot_id").write_text("b\n")
        return gpu.xids(before, folder / "kmsg", folder / "boot_id")

    def test_the_kernels_own_log_is_read(self):
        if os.geteuid():
            return
        found = gpu.xids({})
        assert found.get("place", {})["sequence"] > 0
