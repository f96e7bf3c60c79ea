"""Scripts that machines run, and where they come from."""

import re
from urllib.parse import urlsplit

from cluster.config.validators.choices import matching
from cluster.findings import Refused

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FILE = re.compile(r"/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")

RXDM = "rxdm"
"""Name of the script that `slurm.rxdm` stages; no other script can have it."""

HEALTH = "00-hpc-health"
HEALTH_LAST = "zz-hpc-health"
"""Name of the script that `slurm.health` stages; no other script can have it."""


def script_name(value: str) -> str:
    """A name of a script: a file name, and its place in the order in which scripts run."""
    if not _NAME.fullmatch(value):
        raise Refused(
            "1 to 63 of a-z, 0-9, - and _, a letter or digit first, e.g. 10-gpu-check",
            "choose a name that can be a file's, without path and ending; scripts run in the order of their names",
        )
    if value == RXDM:
        raise Refused(f"any name but {RXDM}, e.g. 10-gpu-check", f"use `slurm.{RXDM}`, or rename the script")
    if value in (HEALTH, HEALTH_LAST):
        raise Refused(f"any name but {value}, e.g. 10-gpu-check", "use `slurm.health`, or rename the script")
    return value


def script_file(value: str) -> str:
    """A path to a file beside the project, or from the root of the machine that `up` runs on."""
    if not _FILE.fullmatch(value) or any(part in (".", "..") for part in value.split("/")):
        raise Refused(
            "a path of letters, digits, ., _ and -, from the project's folder or from the root, e.g. scripts/check.sh",
            "write it without . and .., and move the file to where such a path leads",
        )
    return value


def script_url(value: str) -> str:
    example = "https://HOST/PATH without user and password, e.g. https://example.org/2f0f03f/check.sh"
    try:
        parts = urlsplit(value)
        whole = parts.scheme == "https" and parts.hostname and parts.path.strip("/")
        spare = parts.username or parts.password or parts.fragment
        _ = parts.port
    except ValueError:
        raise Refused(example, "write the address as a browser shows it") from None
    if not whole or spare or not value.isascii() or any(not char.isprintable() or char == " " for char in value):
        raise Refused(example, "write an https address; others could be read or changed on the way")
    return value


sha256 = matching(
    "[0-9a-f]{64}", "64 of 0-9 and a-f", "write what `sha256sum FILE` prints for the script that you have read"
)


def script_text(value: str) -> str:
    if not is_script(value):
        raise Refused(
            "a script whose first line names its interpreter, e.g. #!/bin/bash",
            "write #!/bin/bash as the first line, below `text: |`",
        )
    return value


LUA_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")
"""What the plugin asks for; slurmctld does not start without (req_fxns of src/plugins/job_submit/lua)."""


def lua_text(value: str) -> str:
    """A whole job_submit.lua; only Lua on the controller can check its grammar."""
    odd = sorted({char for char in value if not char.isprintable() and char not in "\t\n"})
    if odd:
        raise Refused("lines of printable characters", f"remove {', '.join(ascii(char) for char in odd)}")
    if lacking := [name for name in LUA_FUNCTIONS if name not in value]:
        raise Refused(
            f"Lua that defines {' and '.join(LUA_FUNCTIONS)}",
            f"add {' and '.join(lacking)}; one that lets everything pass is `function {lacking[0]}() return "
            "slurm.SUCCESS end`",
        )
    return value


def is_script(text: str) -> bool:
    """Whether the kernel would start it: its first line names an interpreter."""
    return text.startswith("#!/") and "\0" not in text
