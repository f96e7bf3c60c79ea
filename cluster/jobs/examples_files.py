"""The files of the examples, as they are on a cluster, and a record of them: later versions remove what is in it."""

import hashlib
import re
from collections.abc import Mapping

from cluster.config.cluster import ClusterConfig
from cluster.jobs.environment import environment
from cluster.jobs.examples import EXAMPLES, Examples, examples
from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.place import ENV
from cluster.jobs.script import BODIES, JobScript
from cluster.platforms import registry

RECORD = ".written"
"""Name of the record, beside the examples: a line for each file, as sha256sum prints it."""
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._-]*)")


def example_files(config: ClusterConfig, found: Examples | None = None) -> dict[str, str]:
    """Text of every file below EXAMPLES, by name: README, scripts, programs."""
    found = found or examples(config)
    scripts = {script.name: script.text() for script in found.scripts}
    return {"README": readme(config, found), **scripts, **dict(sorted(found.programs.items()))}


def on_cluster(config: ClusterConfig, found: Examples | None = None) -> dict[str, str]:
    """The same by absolute path, with the environment that the scripts source."""
    files = {f"{EXAMPLES}/{name}": text for name, text in example_files(config, found).items()}
    return {ENV: environment(config), **files}


def readme(config: ClusterConfig, found: Examples) -> str:
    """The short guide beside the scripts."""
    pyxis = "pyxis" in registry.get(config.platform).job_programs(config)
    text = (BODIES / "examples" / "README.txt").read_text(encoding="utf-8")
    containers = (BODIES / "examples" / "README-containers.txt").read_text(encoding="utf-8")
    title = text.partition("\n")[0].replace("{cluster}", config.name)
    values = {
        "cluster": config.name,
        "rule": "=" * len(title),
        "folder": EXAMPLES,
        "env": ENV,
        "first": next((one.name for one in found.scripts), "SCRIPT"),
        "table": _columns([(script.name, needs(script), script.title) for script in found.scripts]),
        "nodes": _columns(_nodes(config)),
        "containers": f"\n{containers}" if pyxis else "",
    }
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text.rstrip("\n") + "\n"


def needs(script: JobScript) -> str:
    """What a script asks for, in words: 2 nodes, 8 h100 each."""
    nodes, gpus = script.options["nodes"], script.options.get("gpus-per-node")
    kind, _, count = gpus.partition(":") if isinstance(gpus, str) else ("", "", "")
    what = f"{nodes} node{'s' if nodes != 1 else ''}"
    return f"{what}, {count} {kind}{' each' if nodes != 1 else ''}" if gpus else what


def record(files: Mapping[str, str]) -> str:
    """Text of the record of files."""
    return "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(files.items()))


def parse_record(text: str) -> dict[str, str]:
    """Hash of each file of a record, by name. Lines that are none of a record are left out."""
    return {found[2]: found[1] for line in text.splitlines() if (found := _LINE.fullmatch(line))}


def _nodes(config: ClusterConfig) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in partition_facts(config):
        count = len(row.nodes)
        each = f"{row.cpus} processors, {row.memory_mib / 1024:.0f} GiB"
        gpu = f", {row.gpu.count} GPUs ({row.gpu.type})" if row.gpu else ""
        partition = f"partition {row.name}{' (default)' if row.default else ''}"
        rows.append((partition, f"{count} node{'s' if count != 1 else ''}: {each}{gpu}"))
    return rows


def _columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(f"    {line}" for line in lines)
