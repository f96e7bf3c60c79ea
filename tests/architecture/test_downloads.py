"""What is fetched from the network is checked, or stands in the list of what is not."""

import re

from tests.architecture.test_sources import ROOT, texts
from tests.architecture.unpinned import UNPINNED, VERIFIED

FETCHES = re.compile(
    r"""\bcurl\ (--fail|-f)|\bwget\ |["( =]docker://[\w{$]|enroot\ import|git\ clone\b|\bfetch\ --quiet|"git",\ "clone"
    |\bpip(",)?\ "?install\b|PulumiCommand\.install|deb\ \[|raw\.githubusercontent
    |oci://\w|"https://[\w./-]*(charts|operator|k8up|jetstack)|ContainerImage\(|releases/download|IMAGE\ =\ "cr\.""",
    re.VERBOSE,
)
FOLDERS = ("cli", "cluster", "components", "scripts")
NO_FETCH = {
    "cluster/platforms/nebius/stack_file_fields.py",  # the default of the field that releases.py reads
}


def test_every_download_is_listed() -> None:
    fetching = {name for name, text in texts() if name.partition("/")[0] in FOLDERS and FETCHES.search(text)}
    listed = {file for row in UNPINNED for file in row.files}
    assert fetching - NO_FETCH - set(VERIFIED) - listed == set(), "pin it, or add it to tests/architecture/unpinned.py"
    assert {*VERIFIED, *listed} - fetching == set(), "no longer fetched there"


def test_the_page_has_what_is_unpinned() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    section = page.partition("## Content from the network\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert rows == [f"| {row.name} | {row.by} | {row.todo} |" for row in UNPINNED]
