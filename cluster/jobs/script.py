"""Job scripts as text, and env.sh, the environment that they source."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.config.cluster import ClusterConfig
from cluster.jobs.partition_facts import PartitionFacts, partition_facts

BODIES = Path(__file__).parents[2] / "scripts" / "jobs"
"""Bodies of job scripts, in a folder for each kind of job."""
MARK = "# shellcheck shell=bash\n"
"""First line of a body, which names the shell for shellcheck, as there is no #! line."""

Option = str | int | bool
"""The value of an option of sbatch; True for an option without a value, False for one that is left out."""
_DIRECTIVES = re.compile(r"\A(# shellcheck .*\n)+")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/=@%+\[\]*-]+")


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """A script for sbatch."""

    name: str
    """The file name: hello.sh."""
    title: str
    """The purpose, on one line."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """sbatch's long options without the dashes: {"nodes": 2, "exclusive": True}."""
    body: str
    """Bash; it runs with `set -euo pipefail`."""

    def text(self) -> str:
        """Return the text of the file. Raises ValueError for an option that is not allowed in an #SBATCH line."""
        options = "".join(f"#SBATCH {word}\n" for word in map(_quoted, option_words(self.options)))
        title = " ".join(self.title.split())
        return f"#!/bin/bash\n# {title}\n{options}\nset -euo pipefail\n\n{self.body.strip(chr(10))}\n"


def option_words(options: Mapping[str, Option]) -> list[str]:
    """Return options as words of a command line: --nodes=2, --exclusive. Raises ValueError for an invalid name, and for
    a value of more than one line."""
    found: list[str] = []
    for name, value in options.items():
        if not _OPTION.fullmatch(name):
            raise ValueError(f"not a long option of sbatch: {name!r}")
        if isinstance(value, str) and not f"{value}x".isprintable():
            raise ValueError(f"the value of --{name} must be printable and on one line, not {value!r}")
        if value is not False:
            found.append(f"--{name}" if value is True else f"--{name}={value}")
    return found


def read_body(path: str) -> str:
    """Return a body from scripts/jobs, without the comments for shellcheck at its beginning. Raises ValueError if the
    first line is not MARK."""
    text = (BODIES / path).read_text(encoding="utf-8")
    if not text.startswith(MARK):
        raise ValueError(f"scripts/jobs/{path}: the first line must be {MARK.strip()!r}")
    return _DIRECTIVES.sub("", text)


def _quoted(word: str) -> str:
    """Return a word as sbatch reads it in an #SBATCH line: with spaces in double quotes (src/sbatch/opt.c,
    _get_argument)."""
    if _PLAIN.fullmatch(word):
        return word
    if '"' in word or "\\" in word:
        raise ValueError(f"an option in an #SBATCH line can hold neither double quotes nor backslashes: {word!r}")
    return f'"{word}"'


FOLDER = "/opt/apps/hpc"
"""Owned by root, mode 0755; on Kubernetes in the jail."""
ENV = f"{FOLDER}/env.sh"
"""The file that jobs source."""
_DIGITS = re.compile(r"[0-9]+$")
_DEFINED = re.compile(r"^([a-z_]+)\(\)", re.MULTILINE)


def render_environment(config: ClusterConfig) -> str:
    """Return the text of env.sh."""
    by_partition: dict[str, list[PartitionFacts]] = {}
    for row in partition_facts(config):
        by_partition.setdefault(row.name, []).append(row)
    cases = "".join(
        f"        {name})\n{_indented(_partition(config, rows))}            ;;\n" for name, rows in by_partition.items()
    )
    fabrics = (row.fabric for rows in by_partition.values() for row in rows)
    own = [name for fabric in fabrics for name in fabric.environment if f"_hpc_{fabric.environment[-1]} " in cases]
    bodies = dict.fromkeys(["sockets", *own, "job"])
    functions = "\n".join(read_body(f"environment/{name}.sh") for name in bodies)
    return f"""\
# Environment of jobs on the cluster {config.name}, by partition. In a job script: . {ENV}
# Written from the stack's configuration: a change here is lost.
# shellcheck shell=bash

# Jobs source this with any options of bash (set -euo pipefail), in containers too, and more than once.

{functions}
unset -v _hpc_failed
if [[ -n ${{SLURM_JOB_ID:-}} ]]; then
    _hpc_mounts={FOLDER}:{FOLDER}:ro
    case ${{SLURM_JOB_PARTITION:-}} in
{cases}        *)
            echo "env.sh: not written for partition ${{SLURM_JOB_PARTITION:-(none)}}; NCCL gets no settings" >&2
            ;;
    esac
    _hpc_master
    _hpc_distribution
    _hpc_container "$_hpc_mounts"
fi
unset -f {" ".join(_DEFINED.findall(functions))}
unset -v _hpc_mounts
# The status of this file, also for scripts without set -e: . {ENV} || exit
[[ -z ${{_hpc_failed:-}} ]]
"""


def _partition(config: ClusterConfig, rows: list[PartitionFacts]) -> list[str]:
    """Return the lines for a partition; if its nodes differ, a condition on the node's name for each kind."""
    calls = [_call(config, row) for row in rows]
    if len(set(calls)) == 1:
        return [calls[0]]
    lines: list[str] = []
    for word, row, call in zip(["if", *["elif"] * len(rows)], rows, calls, strict=False):
        names = "|".join(
            sorted({_DIGITS.sub("", node) + ("[0-9]+" if _DIGITS.search(node) else "") for node in row.nodes})
        )
        lines += [f"{word} [[ ${{SLURMD_NODENAME:-}} =~ ^({names})$ ]]; then", f"    {call}"]
    return [*lines, "fi"]


def _call(config: ClusterConfig, row: PartitionFacts) -> str:
    fabric, rxdm = row.fabric, config.slurm.rxdm
    # Without the prolog that installs the plugin, nodes use the same network as without a fabric.
    installed = not fabric.rxdm or (rxdm is not None and row.name in rxdm.partitions)
    call = [f"_hpc_{fabric.environment[-1] if installed else 'sockets'}", *filter(None, fabric.host_nics)]
    names = [",".join(fabric.nic_names)] if installed and fabric.nic_names else []
    # If the stack created the fabric's NICs, a job fails when the fabric can't be used.
    return shlex.join([*call, *names]) + (" || _hpc_failed=1" if installed and fabric.nics else "")


def _indented(lines: list[str]) -> str:
    return "".join(f"            {line}\n" for line in lines)
