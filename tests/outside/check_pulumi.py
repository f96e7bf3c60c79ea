"""Hand-over between the engines with a real Pulumi CLI and real plugins: what tests/pulumi_cli does with small ones.

Artifact: a folder with the programs `pulumi`, `pulumi-language-python` (with what is beside it in a release of
pulumi/pulumi) and the plugins `pulumi-resource-command`, `-random` and `-tls`, in it or in its folder `bin`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outside.recorder import Recorder
from tests.pulumi_cli import test_hand_over
from tests.pulumi_cli.conftest import both  # noqa: F401 - a fixture
from tests.pulumi_cli.program import Cli

start = test_hand_over.start
globals().update({name: value for name, value in vars(test_hand_over).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def cli(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The CLI of the artifact."""
    found = next((file for file in (artifact / "pulumi", artifact / "bin" / "pulumi") if file.is_file()), None)
    assert found, f"{artifact}: has no program `pulumi`, nor has its folder bin"
    made = Cli.create(tmp_path_factory.mktemp("pulumi"), found)
    yield made
    made.close()


def test_the_version_is_said(cli: Cli, outside: Recorder) -> None:
    done = cli.run("version", cwd=Path.cwd(), env={})
    outside.did(f"ran Pulumi {done.stdout.strip()} with its own plugins beside the embedded engine")
