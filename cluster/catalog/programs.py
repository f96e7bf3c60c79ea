"""Programs that every image has, whatever it is made from: shells to log in with, and interpreters of scripts.

Source: packages of Debian 12 and 13 and of Ubuntu 22.04 and 24.04, by the names given with each list.
"""

import re

_FOLDERS = ("/bin", "/usr/bin")
"""One folder by two names, in Debian since 12 and in Ubuntu since 20.04 (wiki.debian.org/UsrMerge)."""

LOGIN_SHELLS = (
    *(f"{folder}/{name}" for name in ("bash", "sh", "dash", "rbash", "false") for folder in _FOLDERS),
    "/usr/sbin/nologin",
    "/sbin/nologin",
)
"""Of the packages bash, dash, coreutils and login, which Debian and Ubuntu call essential or required; `false` and
`nologin` let nobody in, on purpose."""

INTERPRETERS = ("sh", "bash", "dash", "python3", "perl", "awk", "sed")
"""By name: those of the above, of perl-base, mawk and sed, and python3, which the set-up itself is written in."""

JOB_PROGRAMS = {
    "podman": "podman",
    "python3-mpi4py": "mpi",
    "python3-torch": "pytorch",
}
"""What jobs can use where a package of Debian or Ubuntu is on the machines: package to the name in
`Platform.job_programs`. python3-mpi4py brings Open MPI along. None of their releases has apptainer."""


def missing_interpreter(text: str) -> str | None:
    """The program that a script's first line asks for, if it is one that not every image has; `env` looks it up."""
    words = [word for word in re.split("[ \t]+", text.split("\n", 1)[0].removeprefix("#!")) if word]
    if not words:
        return "nothing"
    path, _, name = words[0].rpartition("/")
    if name == "env" and path in _FOLDERS:
        asked = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "nothing")
        return None if asked in INTERPRETERS else asked
    return None if path in _FOLDERS and name in INTERPRETERS else words[0]
