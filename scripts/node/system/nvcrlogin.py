#!/usr/bin/python3 -I
"""Stores your API key of NVIDIA NGC, so that enroot and apptainer can pull images from nvcr.io, in jobs as well.

    nvcrlogin [< FILE]     ask for the key without showing it, or read it from FILE, and store it
    nvcrlogin --check      print whether a key is stored; exit code 1 if none is
    nvcrlogin --remove     delete the stored key; logins of other registries stay

Create a key at https://org.ngc.nvidia.com/setup/api-keys. As an argument or a variable, others could see it.
"""

import base64
import getpass
import json
import os
import re
import sys
import tempfile
from pathlib import Path

# https://github.com/NVIDIA/enroot/blob/v3.5.0/doc/cmd/import.md: NGC needs both, with this login, each on one line.
MACHINES, LOGIN = ("nvcr.io", "authn.nvidia.com"), "$oauthtoken"
ENTRY = re.compile(r"(?m)^[ \t]*machine\s+(nvcr\.io|authn\.nvidia\.com)(?:\s+(?:login|password)\s+\S+)+[ \t]*\n?")
# nvapi- and 64 characters, or 84 in base64. enroot runs what follows a `$` (common::evalnetrc in src/common.sh).
KEY = re.compile(r"[A-Za-z0-9_./+=-]{32,512}")


def credentials(settings: Path = Path("/etc/enroot")) -> Path:
    """Return the file that enroot reads: the first of its settings counts (config::load in enroot.in)."""
    texts = "\n".join(file.read_text() for file in sorted(settings.rglob("*.conf")))
    setting = re.search(r"(?m)^[ \t]*ENROOT_CONFIG_PATH[ \t=]+[\"']?(.+?)[\"']?[ \t]*$", texts)
    os.environ.setdefault("XDG_CONFIG_HOME", f"{Path.home()}/.config")
    folder = os.environ.get("ENROOT_CONFIG_PATH") or (setting[1] if setting else "$XDG_CONFIG_HOME/enroot")
    return Path("/", os.path.expandvars(folder), ".credentials").resolve()


def read(path: Path) -> str:
    """Return the file's text, empty without a file. Raises ValueError if others own it or can write to its folder."""
    for place in (Path.home(), path.parent, path):
        status = place.stat() if place.exists() else None
        if status and (status.st_uid != os.getuid() or status.st_mode & 0o022 or place.is_fifo()):
            raise ValueError(f"{place} is not yours alone to write to: run `chmod go-w` on it, or move it")
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(mode: str = "") -> None:
    """Run the command. Raises ValueError for what is refused, without the key in its text."""
    os.umask(0o077)
    enroot = credentials()
    docker = Path(os.environ.get("APPTAINER_CONFIGDIR", Path.home() / ".apptainer"), "docker-config.json").resolve()
    netrc, entries = read(enroot), ""
    if mode == "--check":
        stored = set(MACHINES) <= set(ENTRY.findall(netrc))
        print(f"a key of NGC is stored in {enroot}" if stored else "no key of NGC is stored: run nvcrlogin")
        sys.exit(not stored)
    try:
        config = json.loads(read(docker) or "{}")
        auths = {name: login for name, login in config.get("auths", {}).items() if name != MACHINES[0]}
    except (AttributeError, json.JSONDecodeError):
        raise ValueError(f"{docker} is no JSON of logins: mend it or move it away") from None
    if mode != "--remove":
        key = (getpass.getpass("API key of NGC (not shown): ") if sys.stdin.isatty() else sys.stdin.read(4096)).strip()
        if not KEY.fullmatch(key):
            raise ValueError("nothing was stored: a key has 32 to 512 letters, digits and -_./+=, as nvapi-...")
        entries = "".join(f"machine {machine} login {LOGIN} password {key}\n" for machine in MACHINES)
        auths[MACHINES[0]] = {"auth": base64.b64encode(f"{LOGIN}:{key}".encode()).decode()}
    contents = {enroot: entries + ENTRY.sub("", netrc), docker: json.dumps({**config, "auths": auths}) + "\n"}
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        print("written:", Path(file.name).replace(path))


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"], ["--remove"]):  # an argument may be the key, and is not printed
        sys.exit(f"{__doc__}\nIf you typed the key: your shell's history has it now. Delete the line there.")
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, EOFError, KeyboardInterrupt) as error:
        sys.exit(f"nvcrlogin: {str(error) or 'stopped, nothing was changed'}")
