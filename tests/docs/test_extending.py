"""The examples of docs/extending.md, applied to a copy of this repository and run there."""

import ast
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
PACKAGES = ("cli", "cluster", "components", "engine", "scripts")
COPIED = [*PACKAGES, "__main__.py", "Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.a3mega.yaml", "requirements.txt"]

Run = Callable[..., str]


def blocks(title: str) -> list[tuple[str, str, str]]:
    """Of the section `title`: each block that names its file, as file, place in it, and text."""
    section = re.split(r"^##+ ", PAGE.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(
        r"^```\w+\n# (\S+): (new|import|before \w+|add to \w+)\n(.*?)^```", section, re.MULTILINE | re.DOTALL
    )
    assert found, f"no examples under {title}"
    return found


def add_import(file: Path, text: str) -> None:
    """Add an import after the others."""
    lines = file.read_text().splitlines(keepends=True)
    imports = [node for node in ast.parse("".join(lines)).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    lines.insert(imports[-1].end_lineno or 0, text)
    file.write_text("".join(lines))


def add(file: Path, name: str, text: str) -> None:
    """Add lines to a class, or to the tuple, list, mapping or call that is assigned to a name: as its last item."""
    lines = file.read_text().splitlines(keepends=True)
    for node in ast.parse("".join(lines)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.ClassDef) and node.name == name:
            end = node.end_lineno
        elif any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            keywords = value.keywords if isinstance(value, ast.Call) else []
            end = (keywords[0].lineno if keywords else node.end_lineno or 1) - 1
        else:
            continue
        if node.lineno == node.end_lineno:  # all on one line: before its last bracket
            line = lines[node.lineno - 1].rstrip()
            lines[node.lineno - 1] = f"{line[:-1]}, {text.strip().rstrip(',')}{line[-1]}\n"
        else:
            lines.insert(end or 0, text)
        file.write_text("".join(lines))
        return
    raise AssertionError(f"{file} has no {name}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the program needs, to which the examples are applied one after the other: with what Python has
    compiled of it, but for what it writes just now."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def run(copy: Path) -> Run:
    """Apply the examples of a section to the copy, if they are not there yet, and run Python there: what it printed."""
    applied: set[str] = set()

    def run(title: str, *arguments: str, fails: bool = False) -> str:
        for file, where, text in () if title in applied else blocks(title):
            target = copy / file
            if where == "new":
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            elif where == "import":
                add_import(target, text)
            elif where.startswith("before "):
                head, name, rest = target.read_text().partition(f"\n{where.removeprefix('before ')}: ")
                assert name, f"{target} has no {where.removeprefix('before ')}"
                target.write_text(f"{head}\n{text}{name.lstrip()}{rest}")
            else:
                add(target, where.removeprefix("add to "), text)
        applied.add(title)
        done = programs.run(
            [sys.executable, *arguments],
            cwd=copy,
            env={**os.environ, "HPC_HOME": str(copy / "state"), "PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin"},
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout + done.stderr

    return run


RENDER = """
import sys, yaml
from cluster.load import parse
from cluster.slurm.slurm_conf import render_conf
cluster = {"platform": "gcp", "name": "ex", "nodesets": {"gpu": {"count": 2}}, "partitions": {"gpu": {}}}
for path, value in yaml.safe_load(sys.argv[1]).items():
    *parents, key = path.split(".")
    section = cluster
    for parent in parents:
        section = section.setdefault(parent, {})
    section[key] = value
cluster["partitions"]["gpu"] |= {"nodesets": ["gpu"], "default": True}
print(render_conf(parse({"gcp:project": "my-project", "gcp:zone": "us-central1-a", "hpc:cluster": cluster}), None))
"""
"""Prints slurm.conf of a small cluster with some settings, by their path."""


def test_a_machine_type(run: Run) -> None:
    text = run("A machine type", "-c", RENDER, "nodesets.gpu.machine_type: g2-standard-24")
    (line,) = (line for line in text.splitlines() if line.startswith("NodeName=ex-gpu-[0-1]"))
    assert "CoresPerSocket=12 ThreadsPerCore=2" in line
    assert "Gres=gpu:l4:2" in line


PHASE = """
import runpy, sys
sys.path.insert(0, "scripts/node")
phases = runpy.run_path("scripts/node/__main__.py", run_name="node")["PHASES"]
from pathlib import Path
from system import kernel_settings
kernel_settings.FILE = Path("90-hpc.conf")
kernel_settings.run = lambda *command: print("ran", *command)
for _ in range(2):
    phases["kernel-settings"]({"settings": {"vm.swappiness": 0, "net.core.somaxconn": 4096}})
"""


def test_a_phase_on_a_machine(run: Run, copy: Path) -> None:
    assert run("A phase on a machine", "-c", PHASE).count("ran sysctl --load 90-hpc.conf") == 1
    assert (copy / "90-hpc.conf").read_text() == "net.core.somaxconn = 4096\nvm.swappiness = 0\n"


def test_a_storage_kind(run: Run, copy: Path) -> None:
    stack = copy / "Pulumi.a3mega.yaml"
    stack.write_text(stack.read_text().replace("    storage:\n", "    storage:\n      netapp: {pool: ours}\n"))
    shown = run("A storage kind", "cli", "preview", "a3mega")
    assert "gcp:netapp/volume:Volume" in shown
    assert "NetApp at /data: 100 GiB" in shown
    assert "roles/netapp.admin" in shown


def test_a_command(run: Run) -> None:
    assert run("A command", "cli", "capacity", "dev") == "cpu: 2\ngpu: 1\n"


def test_a_slurm_setting(run: Run) -> None:
    text = run("A Slurm setting", "-c", RENDER, "partitions.gpu.max_cpus_per_node: 12")
    (line,) = (line for line in text.splitlines() if line.startswith("PartitionName=gpu"))
    assert "MaxCPUsPerNode=12" in line
    owned = run("A Slurm setting", "-c", RENDER, "partitions.gpu.conf: {MaxCPUsPerNode: 12}", fails=True)
    assert "max_cpus_per_node" in owned


def test_a_platform(run: Run, copy: Path) -> None:
    assert "ex-cluster  random:index/randomPet:RandomPet" in run("A platform", "cli", "preview", "example")
    assert "Where Example Cloud runs the cluster." in run("A platform", "cli", "schema")
    stack = copy / "Pulumi.example.yaml"
    text = stack.read_text()
    stack.write_text(text.replace("{region: south}", "{regoin: south}"))
    assert "region" in run("A platform", "cli", "preview", "example", fails=True)
    nodesets = "{cpu: {count: 2}, a: {count: 1}, b: {count: 1}, c: {count: 1}, d: {count: 1}}"
    stack.write_text(text.replace("{cpu: {count: 2}}", nodesets))
    assert "at most 4" in run("A platform", "cli", "preview", "example", fails=True)
