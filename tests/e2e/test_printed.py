"""What README.md and the pages print for the stack `dev` runs as it is printed, on one cluster, in the pages' order."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from components.local.host.paths import images_root
from tests.docs.commands import ROOT, commands
from tests.e2e.cluster import LATE, LONG, PATIENCE, free
from tests.e2e.forked import HERE, Program

pytestmark = pytest.mark.e2e

NAME = "printed"
"""Of the cluster, in place of `dev`: another one of that name may run on this host."""
PREVIEWS = {f"./hpc preview {file.name.split('.')[1]}" for file in ROOT.glob("Pulumi.*.yaml")}
"""They need no cloud, whatever else their block needs."""
_BACKUP = re.compile(r"dev-accounting-\d+-\d+\.sql\.gz")


def printed() -> list[tuple[str, str]]:
    """Each command line, once, with what stands below it: those of blocks that are typed here, and previews of all
    stacks; the one that destroys the cluster last."""
    found: dict[str, str] = {}
    for command in commands():
        if not command.kind or command.line in PREVIEWS:
            found.setdefault(command.line, command.shown)
    return sorted(found.items(), key=lambda line: line[0] == "./hpc destroy dev")


@dataclass
class Reader:
    """Somebody who types what the pages print, in a copy of this repository."""

    folder: Path
    env: dict[str, str]
    program: Program
    """Of that copy."""

    def type(self, line: str) -> str:
        """What a line prints. One that goes on until Ctrl-C gets it."""
        words = shlex.split(line.replace("dev-cpu", f"{NAME}-cpu"))
        if backup := _BACKUP.search(line):
            there = next(Path(self.env["HPC_HOME"]).glob("accounting-backups/*.sql.gz")).name
            words = [there if word == backup[0] else word for word in words]
        # Who types these at a terminal is asked.
        words += ["--yes"] if {"restore", "remove"} & set(words) else []
        # A process of its own only for the first, by which ./hpc is seen to start, and for one that gets Ctrl-C.
        if words != ["./hpc", "up", "dev"] and "-f" not in words:
            done = self.program.run(words[1:], self.env, LONG)
            if "machine-late" in done.stdout:  # on a busy host; the finding prints this option
                done = self.program.run([*words[1:], *LATE], self.env, LONG)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            return done.stdout + done.stderr
        with subprocess.Popen(
            words, cwd=self.folder, env=self.env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                out, _ = process.communicate("", timeout=10 if "-f" in words else LONG)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=PATIENCE)
                assert "-f" in words, f"{line}\n{out}"
                return out
        assert process.returncode == 0, f"{line}\n{out}"
        return out


@pytest.fixture
def reader(e2e_root: Path, tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "hpc"
    kept = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, kept.split("\0")):
        if not name.startswith("tests/") or name == str(HERE):
            # With what Python has compiled of it.
            for file in {name, cache_from_source(name)}:
                if (ROOT / file).is_file():
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / file, folder / file)
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    file = folder / "Pulumi.dev.yaml"
    text = file.read_text().replace("name: dev ", f"name: {NAME} ").replace("10.77.0.0/20", free(NAME))
    file.write_text(text)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "carol@laptop", "-f", str(folder / "carol")]
    subprocess.run(command, check=True)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "HPC_"))}
    env = {
        **inherited, "HOME": str(tmp_path), "HPC_HOME": str(tmp_path / "state"), "HPC_ENGINE": "embedded",
        "HPC_LOCAL_ROOT": str(e2e_root), "HPC_LOCAL_IMAGES": str(images_root()),
    }  # fmt: skip
    program = Program(folder, "components.gcp.deploy")
    try:
        yield Reader(folder, env, program)
    finally:
        program.close()
        subprocess.run(["./hpc", "destroy", "dev"], cwd=folder, env=env, capture_output=True, check=False)


def test_every_line_runs_as_it_is_printed(reader: Reader) -> None:
    lines = printed()
    assert [line for line, _ in lines][:2] == ["./hpc up dev", "./hpc run dev -- srun -N2 -l hostname"]
    assert len(lines) > 20
    for line, shown in lines:
        out = reader.type(line)
        if "hostname" in line:
            assert sorted(out.splitlines()) == shown.replace("dev-", f"{NAME}-").splitlines()
        elif line == "./hpc user list dev":
            assert [row.split() for row in out.splitlines()] == [row.split() for row in shown.splitlines()]
