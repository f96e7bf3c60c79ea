"""The JSON that nccl-tests writes beside its output with `-J FILE` (from 2.17 on; src/util.cu, JSON_FILE_VERSION)."""

import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from cluster.report.nccl.run import Device, Measure, Quote, Row, Run


def run_of(document: Mapping[str, Any]) -> Run:
    """The run that a document has. Raises KeyError, TypeError or ValueError where it is not nccl-tests'."""
    config = document.get("config") or {}
    bounds, average = document.get("out_of_bounds"), document.get("average_bus_bandwidth")
    run = Run(
        line=1,
        program=PurePath(str(document["args"][0])).name,
        settings={
            "iters": str(config.get("iterations", "")),
            "warmup iters": str(config.get("warmup_iters", "")),
            "validation": str(config.get("validation", "")),
        },
        # The document also has the whole environment, of which nothing but NCCL's variables is read.
        environment=dict(re.findall(r"(?m)^(NCCL_[A-Z0-9_]+)=(.*)$", "\n".join(map(str, document.get("env") or ())))),
        devices=[
            Device(int(one["rank"]), str(one["hostname"]), str(one["device_info"])) for one in config.get("devices", ())
        ],
        rows=[_row(one) for one in document["results"]],
        out_of_bounds=int(bounds["count"]) if bounds else None,
        average=_number(average["bandwidth"]) if average else None,
        average_failed=bool(average) and average["okay"] == "false",
    )
    run.complaints = [Quote(1, str(one)) for one in document.get("errors") or () if one]
    return run


def _row(one: Mapping[str, Any]) -> Row:
    return Row(
        int(one["size"]),
        int(one["count"]),
        str(one["type"]),
        str(one["redop"]),
        int(str(one["root"]).strip()),
        _measure(one.get("out_of_place")),
        _measure(one.get("in_place")),
    )


def _measure(half: Mapping[str, Any] | None) -> Measure | None:
    if not half:
        return None
    time = half["time"] if "time" in half else half["cpu_time"]
    wrong = half.get("nwrong")
    return Measure(
        _number(time),
        _number(half["alg_bw"]),
        _number(half["bus_bw"]),
        None if wrong is None or math.isnan(_number(wrong)) else int(_number(wrong)),
    )


def _number(value: Any) -> float:  # noqa: ANN401 - "nan" stands as a text
    return float(value)
