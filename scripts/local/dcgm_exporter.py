#!/usr/bin/python3 -S
"""Stands for dcgm-exporter on local machines with stand-in GPUs: it serves the fields of its file for each device
/dev/nvidiaN, with the labels of the real one and the jobs of --hpc-job-mapping-dir.

A GPU with a job is busy, one without is idle. /run/dcgm-stand-in.json has other values, {FIELD: {GPU: VALUE}}: what it
has not, and what is null there, is as it would be. A value of DCGM_EXP_XID_ERRORS_COUNT is {XID: COUNT}; a GPU without
Xids is 0 there and has no number (dcgm-exporter, internal/pkg/collector/expcollector.go at d5e5f510). Nothing is
measured.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

VALUES = Path("/run/dcgm-stand-in.json")
DEVICES = Path("/dev")
BUSY = {
    "DCGM_FI_DEV_GPU_UTIL": (0, 90), "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0, 0.9), "DCGM_FI_PROF_SM_ACTIVE": (0, 0.7),
    "DCGM_FI_PROF_SM_OCCUPANCY": (0, 0.3), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0, 0.4),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0, 0.5), "DCGM_FI_DEV_FB_USED": (500, 60000), "DCGM_FI_DEV_FB_FREE": (80500, 21000),
    "DCGM_FI_DEV_POWER_USAGE": (70, 600), "DCGM_FI_DEV_GPU_TEMP": (30, 60), "DCGM_FI_DEV_MEMORY_TEMP": (35, 70),
    "DCGM_FI_DEV_SM_CLOCK": (345, 1755),
}  # fmt: skip
"""Values without and with a job; other fields are 0."""


def metrics(fields: str, jobs: Path, devices: Path = DEVICES, values: Path = VALUES) -> str:
    """The page, of the text of the file of fields."""
    known = json.loads(values.read_text()) if values.exists() else {}
    gpus = sorted(int(path.name[6:]) for path in devices.glob("nvidia[0-9]*"))
    lines = []
    for row in fields.splitlines():
        name, kind, text = (part.strip() for part in row.split(","))
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for gpu in gpus:
            mapped = jobs / str(gpu)
            mine = mapped.read_text().splitlines() if mapped.exists() else []
            usual = BUSY.get(name, (0, 0))[bool(mine)]
            if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
                usual = round(time.monotonic() * 300e3)
            given = known.get(name, {}).get(str(gpu))
            labels = (
                f'gpu="{gpu}",UUID="GPU-{gpu:08d}-0000-0000-0000-000000000000",'
                f'pci_bus_id="00000000:{gpu + 4:02X}:00.0",'
                f'device="nvidia{gpu}",modelName="NVIDIA stand-in"'
            )
            for job in mine or [""]:
                with_job = f'{labels},hpc_job="{job}"' if mine else labels
                for xid, count in given.items() if isinstance(given, dict) else [("", given)]:
                    numbered = f'{with_job},xid="{xid}"' if xid else with_job
                    lines.append(f"{name}{{{numbered}}} {usual if count is None else count}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Serve on --address with the real program's arguments."""
    given = dict(re.findall(r"--(address|collectors|hpc-job-mapping-dir) (\S+)", " ".join(arguments)))
    fields = Path(given["collectors"]).read_text()

    class MetricsPage(BaseHTTPRequestHandler):
        """The page of metrics, whatever the path."""

        def do_GET(self) -> None:
            """Answer with the values of now."""
            body = metrics(fields, Path(given["hpc-job-mapping-dir"])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Write nothing: every scrape would be a line of the journal."""

    host, _, port = given["address"].rpartition(":")
    HTTPServer((host, int(port)), MetricsPage).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
