"""Packages of a Debian suite that is not the machines' own, through the host's own mirror."""

import subprocess
import tempfile
from pathlib import Path

from components.local.host.paths import images_root
from hostfiles import locked

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def package(name: str, suite: str) -> Path:
    """The file of a package, without what it depends on: downloaded once and kept beside the base images."""
    folder = images_root().with_name("test-packages") / suite
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        found = sorted(folder.glob(f"{name}_*.deb"))
        if not found:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = _download(name, suite, Path(scratch))
                found = [made.rename(folder / made.name)]
    return found[-1]


def _download(name: str, suite: str, folder: Path) -> Path:
    """Download it. The host's own lists and packages are not touched."""
    (folder / "lists" / "partial").mkdir(parents=True)
    for empty in ("status", "empty"):
        (folder / empty).touch()
    (folder / "list").write_text(f"deb [signed-by={KEYS}] {_mirror()} {suite} main\n")
    options = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Etc::sourcelist": folder / "list",
        "Dir::Etc::sourceparts": folder / "empty",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    for command in (["update"], ["download", name]):
        subprocess.run(["apt-get", "-qq", *words, *command], cwd=folder, check=True, timeout=300)
    (found,) = folder.glob(f"{name}_*.deb")
    return found


def _mirror() -> str:
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return next(site for site in listed.stdout.split() if site.rstrip("/").endswith("/debian"))
