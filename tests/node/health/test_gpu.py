"""Checks of GPUs by output of nvidia-smi and DCGM."""

import json
from typing import Any
from xml.sax.saxutils import escape

import pytest
from health import checks, gpu, outcome
from health.nvlink import nvlink
from hypothesis import given
from hypothesis import strategies as st
from system.host import SetupError

from tests import programs
from tests.node.health.gpu_documents import B200, GB300, T4, document, gpu_element

LOST = "Unable to determine the device handle"
# nvidia-smi nvlink, of the R550 branch.
STATUS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1c8a0f6e-0000-0000-0000-000000000000)
    Link 0: 26.562 GB/s
    Link 1: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2c8a0f6e-0000-0000-0000-000000000000)
    Link 0: 26.562 GB/s
    Link 1: 26.562 GB/s
"""
ERRORS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1c8a0f6e-0000-0000-0000-000000000000)
    Link 0: Replay Errors: 3
    Link 0: Recovery Errors: 0
    Link 0: CRC Errors: 12
"""
BEFORE = {
    "counts": {"GPU 0 link 0 Replay Errors": 3, "GPU 0 link 0 Recovery Errors": 0, "GPU 0 link 0 CRC Errors": 12},
    "time": 1.0,
}
# Names and figures of sound links on a live p6-b300.48xlarge of AWS with driver 595.91.07, as public notes on triage
# quote them. B200 has the same generation of links.
BLACKWELL_STATUS = """\
GPU 0: NVIDIA B200 (UUID: GPU-3c8a0f6e-0000-0000-0000-000000000000)
\t Link 0: 53.125 GB/s
"""
BLACKWELL_ERRORS = """\
GPU 0: NVIDIA B200 (UUID: GPU-3c8a0f6e-0000-0000-0000-000000000000)
\t Link 0: Malformed packet Errors: 0
\t Link 0: Buffer overrun Errors: 0
\t Link 0: Rx Errors: 0
\t Link 0: Rx remote Errors: 0
\t Link 0: Rx General Errors: 0
\t Link 0: Local link integrity Errors: 0
\t Link 0: Tx discards: 0
\t Link 0: Link recovery successful events: 0
\t Link 0: Link recovery failed events: 0
\t Link 0: Total link recovery events: 0
\t Link 0: Effective Errors: 0
\t Link 0: Effective BER: 15e-255
\t Link 0: FEC Errors - 0: 36140749276
\t Link 0: FEC Errors - 1: 0
\t Link 0: Symbol Errors: 0
\t Link 0: Symbol BER: 15e-255
\t Link 0: Raw BER Lane 0: 2061
\t Link 0: Raw Errors Lane 0: 82
"""


def smi(**answers: tuple[int, str] | str):
    """Return a stand-in for nvidia-smi with these answers, and those of sound GPUs for other requests."""

    def call(*arguments: str) -> tuple[int, str]:
        what = next(
            name
            for name, word in {
                "gpus": "-q", "apps": "--query-compute-apps", "status": "--status", "errors": "--errorcounters",
            }.items()
            if any(argument.split("=")[0] == word for argument in arguments)
        )  # fmt: skip
        well = {"gpus": document(), "status": STATUS, "errors": ERRORS, "apps": ""}
        answer = answers.get(what, well[what])
        return (0, answer) if isinstance(answer, str) else answer

    return call


def gpus(**answers: tuple[int, str] | str) -> dict[str, outcome.Outcome]:
    return gpu.gpus(2, ecc_errors=0, nvlink_errors=0, nvlinks=2, nvlink_gbps=26.562, before=BEFORE, smi=smi(**answers))


def second(**changed: str) -> str:
    """The document of two GPUs, of which the second is so."""
    return document(gpu_element(0), gpu_element(1, **changed))


SECOND: list[dict[str, str]] = [
    *({key: value} for key, value in (
        ("dram_uncorrectable", "2"), ("sram_uncorrectable_secded", "1"), ("dram_uncorrectable", "GPU requires reset"),
        ("gpu_recovery_action", "Reset"), ("remapped_row_failure", "Yes"), ("remapped_row_unc", "512"),
        ("sram_threshold_exceeded", "Yes"), ("current_link_width", "8x"), ("hw_slowdown", "Active"),
        ("status", "Unknown Error Code 3"), ("remapped_row_pending", "Yes"),
        ("persistence_mode", "Disabled"), ("drain_and_reset_recommended", "Yes"), ("gpu_recovery_action", "Drain P2P"),
        ("gpu_recovery_action", "Drain and Reset"), ("unrepairable_memory", "Yes"), ("total", "65247 MiB"),
        ("current_mig", "Enabled"), ("current_ecc", "Disabled"), ("sw_thermal_slowdown", "Active"),
        ("current_power_limit", "500.00 W"), ("bandwidth", "Degraded"), ("route_unhealthy", "True"),
        ("route_recovery_in_progress", "True"), ("incorrect_configuration", "Incorrect SysGUID"),
    )),
    {"memory_temp": "96 C", "gpu_temp_max_mem_threshold": "95 C"},
    {"gpu_temp_tlimit": "0 C"},
    {"gpu_temp_tlimit": "-2 C"},
    {"sm_clock": "345 MHz", "gpu_util": "100 %", "gpu_idle": "Not Active"},
    {"sm_clock": "1410 MHz", "gpu_util": "100 %", "gpu_idle": "Not Active", "sw_power_cap": "Active"},
    {"state": "In Progress", "status": "N/A"},
]  # fmt: skip
"""What nvidia-smi shows of the second GPU."""
MISSING: dict[str, dict[str, str]] = {
    "no errors": dict.fromkeys(("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable"), "N/A"),
    "no remapped rows": dict.fromkeys(("remapped_row_unc", "remapped_row_pending", "remapped_row_failure"), "N/A"),
    "no temperature": {**T4, "gpu_temp": "N/A"},
}
"""What it does not show of any."""
LOST_LINKS = "NVML: Unable to retrieve NVLink information as all links are inActive\n"


def linkless(number: str) -> str:
    """The links of a board on which a GPU has none."""
    parts = STATUS.split("GPU ")[1:]
    return "".join(
        f"GPU {part if part[0] != number else part.splitlines()[0] + chr(10) + LOST_LINKS}" for part in parts
    )


ANSWERS: dict[str, dict[str, Any]] = {
    **{
        ", ".join(f"{key} {value}" for key, value in item.items()): {"gpus": second(**item)} for item in SECOND
    },
    **{
        f"a T4: {key} {value}": {"gpus": document(gpu_element(0, **T4), gpu_element(1, **{**T4, key: value}))}
        for key, value in (
            ("retired_count", "32"), ("gpu_temp", "94 C"), ("pending_retirement", "Yes"), ("dram_uncorrectable", "1"),
        )
    },
    **{
        case: {"gpus": document(*(gpu_element(number, **item) for number in (0, 1)))} for case, item in MISSING.items()
    },
    "one GPU": {"gpus": document(gpu_element(0))},
    "a GPU that is lost": {
        "gpus": (15, f"{LOST} for GPU0000:05:00.0: GPU is lost.  Reboot the system to recover this GPU\n")
    },
    "another that is lost": {"gpus": f"{document(gpu_element(0))}{LOST} for GPU1: Unknown Error\n"},
    "no driver": {"gpus": (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")},
    "a damaged infoROM": {"gpus": (14, f"{document()}WARNING: infoROM is corrupted at gpu 0000:05:00.0\n")},
    "no document": {"gpus": "\x00garbage\n<xml>"},
    "a document that is cut": {"gpus": document()[:-20]},
    "an inactive link": {"status": STATUS.replace("Link 1: 26.562 GB/s", "Link 1: <inactive>")},
    "no link of the first": {"status": linkless("0")},
    "no link of the second": {"status": linkless("1")},
    "recoveries of a link": {"errors": ERRORS.replace("Recovery Errors: 0", "Recovery Errors: 4")},
    "a replay of a link": {"errors": ERRORS.replace("Replay Errors: 3", "Replay Errors: 4")},
    "a link at half speed": {"status": STATUS.replace("Link 1: 26.562 GB/s", "Link 1: 13.281 GB/s", 1)},
    "no report of links": {"status": "", "errors": ""},
}  # fmt: skip


class TestNvidia:
    def test_sound_gpus_pass(self):
        assert {kind: result["state"] for kind, result in gpus().items()} == dict.fromkeys(
            ("gpu-driver", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink"), "ok"
        )

    @pytest.mark.parametrize("machine", [B200, GB300, T4], ids=["B200", "GB300", "T4"])
    def test_other_sound_gpus_do_not_fail(self, machine):
        listed = gpu.parse_gpus(document(*(gpu_element(number, **machine) for number in range(2))))
        found = gpu.judged_outcomes(listed, gpu.judge(listed, fabric=True), ecc_errors=0)
        assert [kind for kind, result in found.items() if result["state"] == "failed"] == []

    def test_links_of_a_gpu_with_mig_are_not_judged(self):
        """NVML reports them as down: NVIDIA/DCGM 72fa3fe, MonitorNVLinkStatus."""
        found = gpus(gpus=second(current_mig="Enabled"), status=STATUS.replace("26.562 GB/s", "<inactive>"))
        assert found["gpu-nvlink"]["state"] == "skipped"
        assert found["gpu-state"]["text"] == "GPU 1: MIG is on, a job gets a part of the GPU"

    def test_a_fault_has_its_figures(self, reviewed):
        """What is not as on sound GPUs."""
        sound = gpus()
        found = {case: gpus(**answers) for case, answers in ANSWERS.items()}
        shown = {
            case: "\n".join(
                f"{kind} {result['state']}{', not sure' * bool(result.get('unsure'))}: {result['text']}"
                for kind, result in outcomes.items()
                if (result["state"], result["text"]) != tuple(sound.get(kind, {}).get(key) for key in ("state", "text"))
            )
            for case, outcomes in found.items()
        }
        reviewed("health/gpus", shown)

    def test_links_that_are_inactive_by_design_pass(self):
        text = STATUS.replace("Link 1: 26.562 GB/s", "Link 1: <inactive>")
        found = gpu.gpus(2, ecc_errors=0, nvlink_errors=0, smi=smi(status=text))["gpu-nvlink"]
        assert (found["state"], found["text"]) == ("ok", "2 links active")

    def test_only_new_errors_of_links_count(self):
        many = ERRORS.replace("Recovery Errors: 0", "Recovery Errors: 9")
        first = nvlink(STATUS, many, most=0, expected=2, before={}, now=100.0)
        assert first["state"] == "ok", "the training of links at boot causes some"

        def later(errors: str) -> outcome.Outcome:
            return nvlink(STATUS, errors, most=0, expected=2, before=first.get("place", {}), now=400.0)

        assert later(many)["state"] == "ok"
        assert later(ERRORS)["state"] == "ok", "the counters start at 0 when the driver is loaded again"
        some = later(many.replace("CRC Errors: 12", "CRC Errors: 312"))
        assert (some["state"], some["text"]) == ("warning", "GPU 0 link 0: 300 CRC Errors since the last check")
        for name, count in (("CRC", 12), ("Replay", 3)):
            storm = later(many.replace(f"{name} Errors: {count}", f"{name} Errors: {count + 30000}"))
            assert storm["state"] == "failed"
            assert storm["text"] == f"GPU 0 link 0: 100 {name} Errors a second, most 100"

    @pytest.mark.parametrize(
        ("counter", "state"),
        [
            ("Rx Errors", "failed"), ("Symbol Errors", "failed"), ("Malformed packet Errors", "failed"),
            ("Link recovery failed events", "failed"), ("Link recovery successful events", "warning"),
            ("Effective Errors", "warning"), ("Tx discards", "warning"), ("Total link recovery events", "ok"),
            ("FEC Errors - 0", "ok"), ("Raw Errors Lane 0", "ok"),
        ],
    )  # fmt: skip
    def test_counters_of_blackwell(self, counter, state):
        def run(errors: str, before: dict[str, Any]) -> outcome.Outcome:
            return nvlink(BLACKWELL_STATUS, errors, most=0, expected=1, gbps=53.125, before=before, now=300.0)

        first = run(BLACKWELL_ERRORS, {})
        line = next(line for line in BLACKWELL_ERRORS.splitlines() if f" {counter}:" in line)
        name, _, count = line.rpartition(" ")
        more = run(BLACKWELL_ERRORS.replace(line, f"{name} {int(count) + 2}"), {**first.get("place", {}), "time": 0.5})
        assert (first["state"], more["state"]) == ("ok", state)
        assert state == "ok" or f"GPU 0 link 0: 2 {counter} since the last check" in more["text"]

    def test_a_machine_without_the_driver_fails_and_a_container_skips(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SetupError, match="nvidia-smi can't be run: No such file"):
            gpu.gpus(2, ecc_errors=0, nvlink_errors=0)
        monkeypatch.setattr(outcome, "CONTAINER", tmp_path)
        found = gpu.gpus(2, ecc_errors=0, nvlink_errors=0)
        assert {result["state"] for result in found.values()} == {"skipped"}

    @given(st.text())
    def test_any_output_gives_outcomes(self, text):
        kinds = {"gpu-driver", "gpu-lost", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink"}
        for what in ("gpus", "status", "errors"):
            assert set(gpus(**{what: text})) <= kinds
        assert set(gpus(gpus=second(dram_uncorrectable=escape(text, {chr(0): ""})))) <= kinds

    def test_processes_of_other_jobs_are_not_leftovers(self, tmp_path):
        for pid, cgroup in {
            "10": "0::/system.slice/slurmstepd.scope/job_7/step_0\n",
            "11": "0::/system.slice/slurmstepd.scope/job_8/step_0\n",
            "12": "0::/user.slice\n",
        }.items():
            (tmp_path / pid).mkdir()
            (tmp_path / pid / "cgroup").write_text(cgroup)
        found = gpu.leftovers("7", smi=smi(apps="10\n11\n12\n13\n"), proc=tmp_path)
        assert found["state"] == "failed"
        assert "10, 12" in found["text"]

    @pytest.mark.parametrize(
        ("comm", "cmdline"),
        [
            ("fastrak_gpumem_", "/fts/manager\0--num_hops=2\0--num_nics=8\0--uid=\0--alsologtostderr\0"),
            ("nvidia-cuda-mps", "nvidia-cuda-mps-server\0"),
        ],
    )
    def test_a_service_for_jobs_is_a_leftover_only_if_the_job_started_it(self, tmp_path, comm, cmdline):
        (tmp_path / "20").mkdir()
        outside = "0::/system.slice/docker-1.scope\n"
        for name, text in (("comm", f"{comm}\n"), ("cmdline", cmdline), ("cgroup", outside)):
            (tmp_path / "20" / name).write_text(text)
        assert gpu.leftovers("7", smi=smi(apps="20\n"), proc=tmp_path)["state"] == "ok"
        (tmp_path / "20/cgroup").write_text("0::/system.slice/slurmstepd.scope/job_7/step_0\n")
        assert gpu.leftovers("7", smi=smi(apps="20\n"), proc=tmp_path)["state"] == "failed"


class TestDiag:
    """Reports of DCGM, of 4.5 and of 3."""

    def report(self, *results: dict[str, object], name: str = "DCGM Diagnostic") -> str:
        tests = [{"name": "software", "results": [{"entity_id": 0, "status": "Pass"}, *results], "test_summary": {}}]
        return "Note: DCGM\n" + json.dumps({name: {"test_categories": [{"category": "Deployment", "tests": tests}]}})

    @pytest.mark.parametrize(
        ("severity", "state"), [(2, "failed"), (6, "failed"), (1, "warning"), (4, "warning"), (5, "warning")]
    )
    def test_severities_isolate_and_reset_fail(self, severity, state):
        warning = {"error_category": 1, "error_id": 9, "error_severity": severity, "warning": "a row is pending"}
        said = self.report({"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [warning]})
        found = gpu.diag(226, said)
        assert (found["state"], found["text"]) == (state, "software of GPU 3: a row is pending")

    @pytest.mark.parametrize("error", [6, 85])
    def test_what_is_harmless_until_the_reset_is_a_warning(self, error):
        """DCGM_FR_PENDING_PAGE_RETIREMENTS and DCGM_FR_PENDING_ROW_REMAP of NVIDIA/DCGM 72fa3fe, dcgm_errors.c."""
        warning = {"error_category": 7, "error_id": error, "error_severity": 6, "warning": "a row is pending"}
        said = self.report({"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [warning]})
        assert gpu.diag(226, said)["state"] == "warning"

    def test_a_passed_or_missing_report_does_not_fail(self):
        old = self.report({"gpu_id": "1", "status": "SKIP"}, name="DCGM GPU Diagnostic")
        assert gpu.diag(0, old) == outcome.ok("1 tests of DCGM")
        error = '{"DCGM Diagnostic": {"runtime_error": "x"}}'
        for output in ("", "Error: Unable to connect to host engine.", "{}", error):
            assert gpu.diag(255, output)["state"] == "skipped"

    def test_it_runs_once_an_hour_if_dcgm_is_installed(self, tmp_path, monkeypatch):
        programs.write(tmp_path / "dcgmi", f"cat <<'END'\n{self.report()}\nEND\necho x >>{tmp_path}/ran")
        monkeypatch.setattr(outcome, "LAST", tmp_path / "health.json")
        monkeypatch.setenv("PATH", "/nowhere")
        assert checks._diag() == outcome.skipped("DCGM is not installed")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        first = checks._diag()
        kept = {"checks": {"gpu-diag": outcome.ok(first["text"])}, "places": {"gpu-diag": first.get("place")}}
        outcome.LAST.write_text(json.dumps(kept))
        assert checks._diag() == outcome.ok("1 tests of DCGM")
        assert (tmp_path / "ran").read_text() == "x\n"
