"""Versions of the rxdm prolog of A3 Mega nodes: receive-data-path-manager-mega of GoogleCloudPlatform/slurm-gcp.

Source: the file itself at each of these commits, which are all that changed it, newest first. Its check of the
operating system decides whether NCCL's profile gets the exports without which jobs fall back to plain TCP.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

SystemCheck = Literal["known-good", "needs-patch", "without-check"]
Exports = Literal["checked", "always", "never"]

HOST = "https://raw.githubusercontent.com"
PATH = "tools/prologs-epilogs/receive-data-path-manager-mega"
IMAGES = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo"
"""Registry of the two container images: nccl-plugin-gpudirecttcpx-dev and tcpgpudmarxd-dev."""


QUALIFIED = {
    "v1.0.17": ("595.71.05",),
    "v1.0.16": ("580.65.06",),
    "v1.0.15": ("580.95.05",),
    "v1.0.14": ("580.65.06",),
    "v1.0.13": ("570.133.20",),
    "v1.0.12": ("570.133.20",),
}
"""Drivers by the plugin's version, as the notes of its releases name them (commits of
github.com/google/nccl-plugin-gpudirect-tcpxo; of 1.0.14, the correction in 1.0.14-1). Another pair of them fails on the
devices, long after the images were pulled. Of versions before, no notes are public."""


@dataclass(frozen=True)
class RxdmVersion:
    """A version of the prolog."""

    commit: str
    date: str
    """Date of the commit."""
    sha256: str
    """SHA-256 of the file."""
    plugin: str
    """Tag of the NCCL plugin's image."""
    rxdm: str
    """Tag of the receive data path manager's image."""
    system_check: SystemCheck = "known-good"
    """known-good: handles Ubuntu; needs-patch: checks for Debian 12 only; without-check: asks for no system at all."""
    exports: Exports = "checked"
    """The systems on which it writes the exports: those of the check, all, or none."""

    @property
    def drivers(self) -> tuple[str, ...]:
        """NVIDIA drivers with which Google has qualified this plugin; empty if no notes name any."""
        return QUALIFIED.get(self.plugin, ())

    @property
    def url(self) -> str:
        """The permanent URL of this version."""
        return f"{HOST}/GoogleCloudPlatform/slurm-gcp/{self.commit}/{PATH}"

    @property
    def usable(self) -> bool:
        """True if it works on Ubuntu 22.04, as it is or patched."""
        return self.exports != "never"


_good = RxdmVersion  # a short name for the rows
_debian = partial(RxdmVersion, system_check="needs-patch")
_unchecked = partial(RxdmVersion, system_check="without-check")


# fmt: off
_ROWS = (
    _good("f10bb0e967cc6d29b03a21b5a80b7a7c2d7f151c", "2026-07-20",
          "62025cc0df67d942a9d723f11a3efada4d419ffcda0d04e7788790f72199864b", "v1.0.17", "v1.0.23"),
    _good("f7f43f377c808932508881dd1bd8d82e2266a80a", "2026-01-22",
          "457aee02afaed299833edd4411618d05b2acb82b12273d5753272bf93fa4475b", "v1.0.15", "v1.0.21"),
    _good("443904a8e9c7fa9fb53bd632b41cef69b0306e2f", "2025-11-23",
          "c2eb6130c1431002d5c45e304c384643c0597d26e5aab73e9414fe7af88005d8", "v1.0.14", "v1.0.20"),
    _good("67499783580b2a9b71f0c51d5619df8fe03b4d6b", "2025-06-16",
          "9e42a11bc76a93ecfb231c61ede607b190bac82b7b90022e721fe0cf5628d158", "v1.0.10", "v1.0.16"),
    _good("1d979d01e537f86b5ec69cb895c4bca508676ea4", "2025-06-10",
          "84d8850d25677e0d048adf0863b42e746bf32f5d0360dcf1fdc10bfa31b7f050", "v1.0.10", "v1.0.16"),
    _debian("0889bff00bfef921149e7a11c90a934a0049633b", "2025-02-12",
            "7cced174edce647a31717aa47925ddb126fa050baa014e29867f93c2d3090784", "v1.0.8-1", "v1.0.14"),
    _debian("b8600e6145623ee057a94cfaec3b10b4c0d8e8c6", "2025-02-11",
            "ac49bfe0887e6393503349e331ca02f164a6f5482c52664f86b2bd1df9aeb988", "v1.0.8-1", "v1.0.14"),
    _debian("3bfc3d5ea73e099acc61b627b4998731da6e2bf7", "2025-01-07",
            "12fe1124d9b8be6711fb043f682e33b8de77db11e22ab8c7da04e5f47333d757", "v1.0.7", "v1.0.13"),
    _debian("b400646b7d80f263e65163009ddf810266bb34c4", "2024-09-30",
            "091379a75c46110d016a6a68b6b13f9ca5ccb550cbaa72eeeecb8cb4e9e97304", "v1.0.4", "v1.0.10"),
    _debian("6e4500a7d3efc6e4fb3cf4d8d28d21e1f1691893", "2024-09-30",
            "9fce279fe1f0e74c228ed4a8ea2f1ca60f5d807308770354aff22d004e1e063c", "v1.0.4", "v1.0.10"),
    _debian("23d885b2d5dd860a954c0646dfdf4c03f7813443", "2024-08-29",
            "3011d85fc1a05f20677ac2a369eb272ddd2e765cd45cced7cd1fb8ec11431a2b", "v1.0.4", "v1.0.10"),
    _debian("6b82adab3067883fd0828eca7c87fccbc4e19fe6", "2024-08-19",
            "7e9775c03e68b44ca65141026979194e9ee2693bb74b38bd9289043a1dc6669e", "v1.0.4", "v1.0.10"),
    _debian("dcbc23f500460246407de6fe26c1913c23ca62b4", "2024-08-19",
            "421e1b454bc2d55c266e18587c6f57da17b7e1e4c113e72a87bd3cd8f7273af8", "v1.0.4", "v1.0.10"),
    _unchecked("d1bcabcf82dec686023ba0173af36ce91063c715", "2024-08-19",
               "2929564c9fc67ab038755f80c7aca3891a08be6aa39234be640ea455cd1f37f2", "v1.0.4", "v1.0.10",
               exports="always"),
    _unchecked("8e41adf9ad0e57feb069ea110a7ddac4f30a4ba5", "2024-05-31",
               "5c8e9bed78ba5e3b3ba3c832f02860e7fb4b40cc65b1ca6a3305590477ad5fd3", "v1.0.2", "v1.0.8",
               exports="never"),
    _unchecked("e6646a2b4eb0a0576845d012d00ee94591530cba", "2024-05-29",
               "91f9c8f54f7d712571e9338091cac327605ac9cda9fac88c22e711c5c0c9e070", "v1.0.1", "v1.0.8",
               exports="never"),
    _unchecked("f28f72291c1efb5cc47ed555e616616c4cf61ac1", "2024-05-17",
               "66a942f638432cc5bb599a169b04a1240d27ada59e4bbed3acb4929c80e6f76d", "v1.0.0", "v1.0.6-sctp",
               exports="never"),
)
# fmt: on

RXDM_VERSIONS: dict[str, RxdmVersion] = {row.sha256: row for row in _ROWS}
"""Every version, by the SHA-256 of the file, newest first."""
ACTIONS: dict[str, str] = {
    row.sha256: "refuse" if not row.usable else "patch" if row.system_check == "needs-patch" else "ok" for row in _ROWS
}
"""Actions of scripts/node/jobs/rxdm.py for each version, by the SHA-256 of the file."""
NEWEST = next(row for row in _ROWS if row.system_check == "known-good")


def fitting(driver: str) -> RxdmVersion:
    """Return the default version of `slurm.rxdm`: of the versions that handle Ubuntu, the newest that was qualified
    with the driver, else the newest."""
    return next((row for row in _ROWS if row.system_check == "known-good" and driver in row.drivers), NEWEST)
