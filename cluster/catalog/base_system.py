"""Accounts and programs that every Debian and Ubuntu has besides a stack's own users and packages.

Source: packages of Debian 12 and 13 and of Ubuntu 22.04 and 24.04, by the names given with each list.
"""

import re

_BASE = """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody _apt
    adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev
    staff users nogroup
"""
"""passwd.master and group.master of base-passwd 3.6.1 (Debian 12), 3.6.7 (13), 3.5.52 (Ubuntu 22.04), 3.6.3 (24.04)."""
_SYSTEMD = """
    input kvm render sgx clock systemd-journal systemd-network systemd-resolve systemd-timesync systemd-coredump
    systemd-oom systemd-bus-proxy
"""
"""sysusers.d of systemd 249 to 257. Other names that begin with systemd- are reserved too (systemd.io/UIDS-GIDS)."""
_PACKAGES = """
    messagebus ssh _ssh sshd munge slurm slurmrestd mysql dma crontab polkitd ssl-cert postfix postdrop exim Debian-exim
    tcpdump uuidd tss netdev rdma fuse _rpc rpc statd _chrony chrony ntp dnsmasq avahi dhcpcd cloudsdk
    nvidia-persistenced nvidia-dcgm postgres prometheus
"""
"""Accounts of packages in images (components/local/host/images.py, scripts/image), and of those that sites add."""
_UBUNTU = """
    syslog landscape pollinate fwupd-refresh usbmux lxd ubuntu
"""
"""Accounts of Ubuntu's images for clouds, `ubuntu` being cloud-init's own user, who may become root."""

PRIVILEGED = frozenset(
    "root adm admin disk docker google-sudoers incus incus-admin kmem libvirt libvirt-qemu lxd shadow staff sudo sys "
    "ubuntu wheel".split()
)
"""Groups by whose membership somebody becomes root, or reads what is root's: sudoers of Debian (sudo) and Ubuntu (also
admin), Google's guest agent (google-sudoers), pam_wheel (wheel), container and machine managers (docker, lxd, incus,
libvirt), raw disks and memory (disk, kmem), passwords and logs (shadow, adm), /usr/local (staff)."""

SYSTEM = frozenset(f"{_BASE} {_SYSTEMD} {_PACKAGES} {_UBUNTU}".split()) | PRIVILEGED
"""Users and groups that belong to the operating system or to daemons."""


def is_system_name(name: str) -> bool:
    """Return whether a name belongs to the operating system."""
    return name in SYSTEM or name.startswith("systemd-")


_FOLDERS = ("/bin", "/usr/bin")
"""Folders with two names, in Debian since 12 and in Ubuntu since 20.04 (wiki.debian.org/UsrMerge)."""

LOGIN_SHELLS = (
    *(f"{folder}/{name}" for name in ("bash", "sh", "dash", "rbash", "false") for folder in _FOLDERS),
    "/usr/sbin/nologin",
    "/sbin/nologin",
)
"""Shells of the packages bash, dash, coreutils and login, which Debian and Ubuntu call essential or required; `false`
and `nologin` let nobody in, on purpose."""

INTERPRETERS = ("sh", "bash", "dash", "python3", "perl", "awk", "sed")
"""Names of interpreters: those of the above, of perl-base, mawk and sed, and python3, the set-up's own."""

JOB_PROGRAMS = {
    "podman": "podman",
    "python3-mpi4py": "mpi",
    "python3-torch": "pytorch",
}
"""Programs for jobs where a package of Debian or Ubuntu is on the machines: package to the name in
`Platform.job_programs`. None of their releases has apptainer."""

MONITORING = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")
"""Packages of metrics and alerts, by one name in Debian and Ubuntu; each is a unit of systemd by its own name."""

FIREWALL = "nftables"
"""The package by which users of a machine are kept from ports (scripts/node/monitoring/service.py)."""


def missing_interpreter(text: str) -> str | None:
    """Return the interpreter of a script's first line, also behind `env`, if not every image has it; else None."""
    words = [word for word in re.split("[ \t]+", text.split("\n", 1)[0].removeprefix("#!")) if word]
    if not words:
        return "nothing"
    path, _, name = words[0].rpartition("/")
    if name == "env" and path in _FOLDERS:
        program = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "nothing")
        return None if program in INTERPRETERS else program
    return None if path in _FOLDERS and name in INTERPRETERS else words[0]
