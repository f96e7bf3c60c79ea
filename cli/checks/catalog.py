"""The checks: how each is started."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli import console
from cli.checks.check import Check
from cli.errors import CliError
from cli.stack import project

_SHELLS = (b"sh", b"bash", b"dash")
CLUSTERS = "tests/e2e"
"""Whole clusters, through the command."""
SECOND = tuple(f"{CLUSTERS}/test_{name}.py" for name in ("changes", "day_two", "faults", "status"))
"""Those of a second process, which takes about as long as the rest. Files that share a cluster are in one process."""
THIRD = tuple(
    f"{CLUSTERS}/test_{name}.py" for name in ("containers", "examples", "health", "mlperf", "quickcheck", "user")
)
"""Those of a third: what users do, most of it on the cluster `lab`."""
PODS = "tests/nebius"
"""Kubernetes' API servers and charts, which wait as much as they work."""
SLOW = (
    "tests/cli/test_cloud_stacks.py",
    "tests/cli/test_gather.py",
    "tests/cli/test_hostile_files.py",
    "tests/cli/test_language_host.py",
    "tests/cli/test_launcher.py",
    "tests/cli/test_pulumi_cli.py",
    "tests/cli/test_quoting.py",
    "tests/cli/test_rehearse.py",
    "tests/cli/test_run_options.py",
    "tests/cluster/test_gcp_request.py",
    "tests/cluster/test_live_logs.py",
    "tests/components/test_gcp_customize.py",
    "tests/components/test_gcp_identity.py",
    "tests/components/test_gcp_image.py",
    "tests/components/test_gcp_machines.py",
    "tests/components/test_gcp_network.py",
    "tests/components/test_gcp_nodesets.py",
    "tests/components/test_gcp_storage.py",
    "tests/components/test_refusals.py",
    "tests/contract/test_edits.py",
    "tests/contract/test_gcp_growth.py",
    "tests/contract/test_gcp_stacks.py",
    "tests/contract/test_pulumi_yaml.py",
    "tests/contract/test_replacements.py",
    "tests/contract/test_stacks.py",
    "tests/contract/test_staging.py",
    "tests/docs/test_extending.py",
    "tests/engine/test_journal.py",
    "tests/engine/test_kill.py",
    "tests/engine/test_lifecycle.py",
    "tests/engine/test_notes.py",
    "tests/engine/test_random_graphs.py",
    "tests/engine/test_state.py",
    "tests/gcp/test_bake.py",
    "tests/gcp/test_bake_engine.py",
    "tests/gcp/test_bake_interrupted.py",
    "tests/gcp/test_bake_of_before.py",
    "tests/gcp/test_bake_trial.py",
    "tests/gcp/test_flex.py",
    "tests/local/test_ready.py",
    "tests/nebius/access/test_kubectl.py",
    "tests/nebius/api/test_errors.py",
    "tests/nebius/api/test_killed.py",
    "tests/nebius/api/test_stack.py",
    "tests/nebius/api/test_stand_in.py",
    "tests/nebius/deploy/test_components.py",
    "tests/nebius/deploy/test_deploy_leftovers.py",
    "tests/nebius/state/test_nebius_bucket.py",
    "tests/node/test_cluster_state.py",
    "tests/node/test_homes.py",
    "tests/node/test_image_at_boot.py",
    "tests/node/test_image_library.py",
    "tests/node/test_collect.py",
    "tests/node/test_lustre_ready.py",
    "tests/node/test_watch.py",
    "tests/platforms/test_toy_engine.py",
    "tests/architecture/test_imports.py::test_heavy_packages_are_loaded_only_when_used",
    "tests/cli/test_config_set.py::TestText::test_any_value_comes_back",
    "tests/cli/test_engines.py::TestCli::test_is_not_run_with_a_passphrase_that_does_not_fit",
    "tests/cluster/test_config_bounds.py::test_much_is_read_or_refused_in_two_seconds",
    "tests/cluster/test_config_shapes.py::test_an_odd_value_anywhere_is_told_in_four_parts_or_taken",
    "tests/cluster/test_impact.py::test_table_and_machine_agree",
    "tests/cluster/test_rehearsal.py::test_of_any_stack_nothing_of_slurm_is_lost",
    "tests/contract/test_local_stacks.py::test_a_command_logs_in_where_it_is_meant_to",
    "tests/docs/test_pages.py::test_commands_parse",
    "tests/node/test_rxdm.py::TestVersionsThatFollowEachOther::test_a_write_that_fails_anywhere_costs_nothing",
)
"""What a fast run leaves out, by measured cost: four fifths of the time of all tests but clusters."""
OUTSIDE = "tests/outside"
"""Checks against artifacts of others, `check_NAME.py`: run by name alone, with the artifact."""
NAMES = ("format", "lint", "shell", "schema", "types", "tests")
_ENV = {"PYTHONDONTWRITEBYTECODE": ""}
"""Checks start Python a thousand times: what it compiles is kept, also where the environment says otherwise."""


def lanes(only: Sequence[str], *, fast: bool = False) -> list[list[Check]]:
    """Everything but the tests, in lanes that run side by side.

    A fast run checks the types of the files that differ from the last commit, since all of them take 20 seconds.
    """
    scripts = map(str, shell_scripts(project.ROOT))
    quick = [
        Check(name="format", command=[_tool("ruff"), "format", "--check"]),
        Check(name="lint", command=[_tool("ruff"), "check"]),
        # With the library that the image's steps source: they lie in folders beside it.
        Check(name="shell", command=[_tool("shellcheck"), "-x", "-P", "scripts/image", *scripts]),
        Check(name="schema", command=[sys.executable, "cli", "schema", "--check"], env=_ENV),
    ]
    checked = _changed(project.ROOT) if fast else []
    types = [Check(name="types", command=[sys.executable, "-m", "basedpyright", *checked], env=_ENV)]
    if fast and not checked:
        types = []
    return [[check for check in lane if check.name in only] for lane in (quick, types)]


def tests(arguments: Sequence[str], *, fast: bool) -> list[Check]:
    """Pytest, with the user's arguments last so that they win.

    A fast run leaves out whole clusters and what is SLOW. Whole clusters wait for machines more than they work: they
    run in three processes beside all other tests, and PODS in one, unless the arguments choose some.
    """
    colour = console.stdout().is_terminal and "NO_COLOR" not in os.environ
    pytest = [sys.executable, "-m", "pytest", f"--color={'yes' if colour else 'no'}"]
    if fast:
        left_out = [f"--{'deselect' if '::' in one else 'ignore'}={one}" for one in SLOW] if not arguments else []
        options = ["-m", "not e2e and not slow", "-n", "2", "--dist", "worksteal", *left_out]
        return [Check(name="tests", command=[*pytest, *options, *arguments], env=_ENV)]
    if arguments:
        return [Check(name="tests", command=[*pytest, *arguments], env=_ENV)]
    listed = [*pytest, "--durations=20"]
    return [
        Check(
            name="clusters", command=[*listed, CLUSTERS, *(f"--ignore={file}" for file in (*SECOND, *THIRD))], env=_ENV
        ),
        Check(name="more clusters", command=[*listed, *SECOND], env=_ENV),
        Check(name="jobs", command=[*listed, *THIRD], env=_ENV),
        Check(name="pods", command=[*listed, PODS], env=_ENV),
        Check(name="tests", command=[*listed, f"--ignore={CLUSTERS}", f"--ignore={PODS}"], env=_ENV),
    ]


def outside(pairs: Sequence[str], arguments: Sequence[str]) -> Check:
    """The checks NAME=PATH against outside artifacts, and nothing else. Raises CliError for what is not there."""
    names = [file.stem.removeprefix("check_").replace("_", "-") for file in project.ROOT.glob(f"{OUTSIDE}/check_*.py")]
    files, options = [], []
    for pair in pairs:
        name, _, path = pair.partition("=")
        artifact = Path(path).expanduser().resolve()
        if name not in names:
            raise CliError(
                f"--outside: there is no such check\n  given: {pair}\n  allowed: NAME=PATH, NAME one of "
                f"{', '.join(sorted(names))}\n  to do: name one of these, with the folder or file it is run on"
            )
        if not path or not artifact.exists():
            raise CliError(
                f"--outside {name}: there is no such file or folder\n  given: {path or 'no path'}\n  allowed: what the "
                f"check is run on: see the head of {OUTSIDE}/check_{name.replace('-', '_')}.py\n  to do: download it, "
                f"and give its path: --outside {name}=PATH"
            )
        files.append(f"{OUTSIDE}/check_{name.replace('-', '_')}.py")
        options += ["--outside", f"{name}={artifact}"]
    return Check(
        name="outside",
        command=[sys.executable, "-m", "pytest", "--disable-warnings", *files, *options, *arguments],
        env=_ENV,
    )


def shell_scripts(root: Path) -> list[Path]:
    """Files of the project that begin with the name of a shell: those that git tracks or would, else all there are."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        files = [root / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        files = [path for path in root.rglob("*") if ".venv" not in path.parts]
    return sorted({path.relative_to(root) for path in files if path.is_file() and _is_shell(path)})


def _changed(root: Path) -> list[str]:
    """Python files that differ from the last commit, or that git does not know yet."""
    new = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard", "*.py"], cwd=root, capture_output=True, check=False
    )
    changed = subprocess.run(
        ["git", "diff", "-z", "--name-only", "HEAD", "--", "*.py"], cwd=root, capture_output=True, check=False
    )
    names = {os.fsdecode(name) for name in (new.stdout + changed.stdout).split(b"\0") if name}
    return sorted(name for name in names if (root / name).is_file())


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(200)
    words = first.removeprefix(b"#!").split() if first.startswith(b"#!") else []
    program = words[1] if len(words) > 1 and words[0].endswith(b"/env") else words[0] if words else b""
    return program.rpartition(b"/")[2] in _SHELLS


def _tool(name: str) -> str:
    """A program of the environment that runs this."""
    return str(Path(sys.executable).with_name(name))
