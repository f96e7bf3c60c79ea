"""`./hpc report`: the parts of the page, a part that can't be read, and the file."""

from pathlib import Path

import pytest

from cli.commands.report import MARK
from cluster.observe import reliability
from tests.cli.commands.test_status import STACK, write_facts
from tests.cli.conftest import Hpc, Tool, patch_outputs
from tests.cluster.observe.observations import NOW, healthy

SACCT = """\
2026-10-22T00:00:00 2026-11-21T00:00:00
1|alice|research|cpu|3600|billing=2,cpu=2,mem=2048M,node=1|1|COMPLETED|2026-11-01T00:00:00|2026-11-01T01:00:00|01:00:00||
MARK-
"""
# Answers by the command line; an answer has the mark of its command line.
FAKE_SSH = """\
for word; do name=$line; line=$word; done
address=$(sed -n "/^Host $name\\$/,/HostName/s/.*HostName //p" "$2")
mark=$(printf '%s' "$line" | grep -oE '[0-9a-f]{24}' | head -n 1)
case $line in
    *"node look"*) cat "$ANSWERS/$address" ;;
    *health-history*) sed "s/MARK/$mark/g" "$ANSWERS/reliability" ;;
    *TotalCPU*) sed "s/MARK/$mark/g" "$ANSWERS/usage" ;;
    *) echo "unexpected: $line" >&2; exit 9 ;;
esac
"""


@pytest.fixture
def answers(root: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the answers of a cluster of two nodes, which is up."""
    folder = tmp_path / "answers"
    folder.mkdir()
    config, platform = {**STACK, "slurm": {"health": {}}}, {"name": "local", "title": "this machine"}
    patch_outputs(monkeypatch, {**write_facts(healthy(), folder), "config": config, "platform": platform})
    begin, end = int(NOW) - 28 * reliability.DAY, int(NOW)
    (folder / "reliability").write_text(
        f"{begin} {end}\nMARK-\nMARK-\nMARK-\n|{begin}|Unknown|||cpu=4,node=2|hc-cpu-[0-1]|Cluster Registered TRES\n"
        'MARK-\n{"node": "hc-cpu-0", "time": %d, "failed": {"nic": "eth1 has no link"}}\nMARK-\n' % (end - 99)
    )
    (folder / "usage").write_text(SACCT.replace("|", "MARK"))
    tool("ssh", FAKE_SSH)
    monkeypatch.setenv("ANSWERS", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_page_has_all_parts_and_no_secret(hpc: Hpc, answers: Path):
    ended = hpc("report", "dev")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Wrote dev-report.html (")
    page = Path("dev-report.html").read_text()
    for expected in (
        "all is well", "10.83.0.0/22", "alice", "History of health checks", "The stack has no monitoring.", "22.05.8",
    ):  # fmt: skip
        assert expected in page, expected
    assert "PRIVATE KEY" not in page


def test_a_part_that_cannot_be_read_is_named_in_the_page(hpc: Hpc, answers: Path):
    (answers / "usage").write_text("slurmdbd: Connection refused\n")
    (answers / "reliability").unlink()
    ended = hpc("report", "dev", "--output", "folder/page.html")
    assert ended.code == 0
    named = [line.partition(" could not")[0] for line in ended.err.splitlines()]
    assert named == ["usage", "reliability"]
    page = Path("folder/page.html").read_text()
    assert "Could not be read: usage, reliability." in page
    assert "all is well" in page


def test_a_file_that_is_no_report_is_not_overwritten(hpc: Hpc, answers: Path):
    file = Path("dev-report.html")
    file.write_text("<p>mine</p>")
    error = hpc("report", "dev").error
    assert error == "error: dev-report.html is no report. To do: name another file with --output, or add --force.\n"
    assert file.read_text() == "<p>mine</p>"
    assert hpc("report", "dev", "--force").code == 0
    assert MARK in file.read_text()
    assert hpc("report", "dev").code == 0, "one of its own is replaced"
    assert "it is no file" in hpc("report", "dev", "--output", ".").error
    assert "is no point in time" in hpc("report", "dev", "--since", "often").error
