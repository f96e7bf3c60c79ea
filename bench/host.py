"""The machine that measures, in words that tell nothing but how fast it may be."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path


def description() -> dict[str, str]:
    """Processor, memory, kernel, distribution and Python."""
    info = dict(_pairs("/proc/cpuinfo", ":"))
    memory = dict(_pairs("/proc/meminfo", ":")).get("MemTotal", "0 kB").split()[0]
    release = dict(_pairs("/etc/os-release", "="))
    return {
        "processor": info.get("model name", platform.machine()),
        "cores": str(os.cpu_count() or 1),
        "memory": f"{int(memory) / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "distribution": release.get("PRETTY_NAME", "unknown").strip('"'),
        "python": platform.python_version(),
    }


def load() -> float:
    """Processes that want a core, averaged over the last minute."""
    return os.getloadavg()[0]


def _pairs(path: str, separator: str) -> Iterator[tuple[str, str]]:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, found, value = line.partition(separator)
        if found:
            yield name.strip(), value.strip()
