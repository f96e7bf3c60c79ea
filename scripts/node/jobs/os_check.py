"""The check of the operating system in the rxdm prolog: found by its text, and tried. Pure but for bash.

A check is one `if ...; then` line of greps in /etc/os-release and in what lsb_release prints. Only such a line is ever
tried or changed; a script that asks for its system in any other way is not understood, and left alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

OK, PATCH, UNKNOWN = "ok", "patch", "unknown"

DEBIAN = '(grep -q "ID=debian" /etc/os-release && lsb_release -rs | grep -q "12")'
UBUNTU = '(grep -q "ID=ubuntu" /etc/os-release && lsb_release -rs | grep -q "22.04")'
PATCHED = f"( {DEBIAN} || {UBUNTU} )"

# No $, ` or \ within quotes: what is tried can run nothing but these programs. Nothing can be read in two ways, so that
# a line which is none of this is given up at once.
_WORD = r'(?:\(|\)|&&|\|\||\|(?!\|)|!|grep -q[xEFw]* "[-\w.=^ ]*"(?: /etc/os-release)?|lsb_release -rs)'
_CHECK = re.compile(rf"^[ \t]*if[ \t]+(?P<check>{_WORD}(?:[ \t]*{_WORD})*)[ \t]*;[ \t]*then[ \t]*$", re.MULTILINE)
_ASKS = re.compile(r"os-release|lsb_release")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)

SYSTEMS = {
    "Ubuntu 22.04": ("22.04", 'NAME="Ubuntu"\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\n'),
    "Debian 12": ("12", 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'),
    "Rocky Linux 8.10": ("8.10", 'NAME="Rocky Linux"\nVERSION_ID="8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'),
}
"""Systems to try a check on: what `lsb_release -rs` prints there, and os-release."""


def classify(text: str) -> tuple[str, str]:
    """Whether a prolog is right for Ubuntu 22.04 as it is, can be patched, or is not understood; and why."""
    checks = _checks(text)
    if _asks_elsewhere(text, checks):
        return UNKNOWN, "it asks for its operating system in a way that is not understood"
    if not checks:
        return UNKNOWN, "it asks for no operating system"
    if len(checks) > 1:
        return UNKNOWN, f"it asks for its operating system {len(checks)} times"
    check = checks[0]["check"]
    if _same(check, DEBIAN):
        return PATCH, "it checks for Debian 12 only"
    if holds(check, "Ubuntu 22.04"):
        return OK, "its check holds on Ubuntu 22.04"
    return UNKNOWN, f"its check does not hold on Ubuntu 22.04, and is not the one for Debian 12: {check}"


def patch(text: str) -> str:
    """The text with its one check for Debian 12 made one for Debian 12 or Ubuntu 22.04."""
    (found,) = _checks(text)
    return text[: found.start("check")] + PATCHED + text[found.end("check") :]


def unpatch(text: str) -> str:
    """The text before `patch`, where the check was written as upstream does; other texts as they are."""
    for found in _checks(text):
        if found["check"] == PATCHED:
            return text[: found.start("check")] + DEBIAN + text[found.end("check") :]
    return text


def proven(text: str) -> str:
    """What is wrong with a patched text; nothing if its check holds where it should, and nowhere else."""
    checks = _checks(text)
    if len(checks) != 1:
        return f"it has {len(checks)} checks"
    for system, wanted in (("Ubuntu 22.04", True), ("Debian 12", True), ("Rocky Linux 8.10", False)):
        if holds(checks[0]["check"], system) != wanted:
            return f"its check is {'false' if wanted else 'true'} on {system}"
    return ""


def holds(check: str, system: str) -> bool:
    """Try a check with bash as if on one of SYSTEMS."""
    release, text = SYSTEMS[system]
    with tempfile.TemporaryDirectory(prefix="hpc-check-") as folder:
        fixture = Path(folder) / "os-release"
        fixture.write_text(text)
        script = (
            'lsb_release() { echo "$RELEASE"; }\n'
            f"if {check.replace('/etc/os-release', chr(34) + '$FIXTURE' + chr(34))}; then exit 0; fi; exit 1\n"
        )
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "FIXTURE": str(fixture), "RELEASE": release}
        done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, timeout=30, check=False,
                              stdin=subprocess.DEVNULL)  # fmt: skip
    return done.returncode == 0


def _checks(text: str) -> list[re.Match[str]]:
    return [found for found in _CHECK.finditer(text) if _ASKS.search(found["check"])]


def _asks_elsewhere(text: str, checks: list[re.Match[str]]) -> bool:
    rest = text
    for found in reversed(checks):
        rest = rest[: found.start()] + rest[found.end() :]
    return bool(_ASKS.search(_COMMENT.sub("", rest)))


def _same(check: str, other: str) -> bool:
    """Whether two checks differ in nothing but blanks between words."""
    return re.findall(_WORD, check) == re.findall(_WORD, other)
