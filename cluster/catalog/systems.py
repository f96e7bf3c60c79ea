"""Systems that a rehearsal's machines can present themselves as: what their os-release says."""

from collections.abc import Mapping

SYSTEMS: Mapping[str, Mapping[str, str]] = {
    # base-files 12ubuntu4 of Ubuntu 22.04, without its web addresses.
    "ubuntu-2204": {
        "PRETTY_NAME": "Ubuntu 22.04.5 LTS",
        "NAME": "Ubuntu",
        "VERSION_ID": "22.04",
        "VERSION": "22.04.5 LTS (Jammy Jellyfish)",
        "VERSION_CODENAME": "jammy",
        "ID": "ubuntu",
        "ID_LIKE": "debian",
        "UBUNTU_CODENAME": "jammy",
    },
}
"""Fields of os-release(5) by the name of the system."""
