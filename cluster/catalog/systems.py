"""Systems that a rehearsal's machines can present themselves as: what their os-release says."""

from collections.abc import Mapping

SYSTEMS: Mapping[str, Mapping[str, str]] = {
    # Source: base-files 12ubuntu4 of Ubuntu 22.04, without its web addresses.
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
    # base-files 13ubuntu10.3 of Ubuntu 24.04, likewise.
    "ubuntu-2404": {
        "PRETTY_NAME": "Ubuntu 24.04.3 LTS",
        "NAME": "Ubuntu",
        "VERSION_ID": "24.04",
        "VERSION": "24.04.3 LTS (Noble Numbat)",
        "VERSION_CODENAME": "noble",
        "ID": "ubuntu",
        "ID_LIKE": "debian",
        "UBUNTU_CODENAME": "noble",
    },
}
"""Fields of os-release(5) by the name of the system."""
