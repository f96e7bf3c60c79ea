"""Creates the key pair with which a user of the jail logs in from one pod to another, as Soperator's createuser does.

people.py runs it as that user, so that links in the home lead to nothing that the user may not write. HOME is the
user's home.
"""

import os
import subprocess
import sys
from pathlib import Path


def create(home: Path, comment: str) -> None:
    """Create ~/.ssh/id_ecdsa, and add it to the authorized keys. Existing files are kept.

    Raises OSError, and subprocess.CalledProcessError with ssh-keygen's own text.
    """
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    private, public, keys = folder / "id_ecdsa", folder / "id_ecdsa.pub", folder / "authorized_keys"
    if not private.exists():
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-C", comment, "-f", str(private)]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    line = public.read_text().strip()
    text = keys.read_text() if keys.exists() else ""
    if line not in text.splitlines():
        with keys.open("a") as file:
            file.write(("" if text.endswith("\n") or not text else "\n") + line + "\n")
        keys.chmod(0o600)


if __name__ == "__main__":
    os.umask(0o077)
    try:
        create(Path(os.environ["HOME"]), sys.argv[1])
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)
    except OSError as error:
        sys.exit(str(error))
