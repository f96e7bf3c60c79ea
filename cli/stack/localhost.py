"""This machine, before a rehearsal on it changes anything: root, and the packages that make machines."""

from cli import console
from components.local.host.packages import install_packages, missing_packages, require_host, usual_umask


def prepare() -> None:
    """See that machines can be made here; installs what is missing, after saying so. Raises HostError: they can't be;
    the text says why and what to do."""
    usual_umask()
    install_packages(missing_packages(), lambda text: console.note(f"{text} ..."))
    require_host()
