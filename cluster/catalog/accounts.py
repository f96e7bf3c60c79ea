"""Users and groups that machines have before a stack's own people come, and groups whose members become root.

Source: the packages that each list names.
"""

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
"""sysusers.d of systemd 249 to 257; any other name that begins so is systemd's as well (systemd.io/UIDS-GIDS)."""
_PACKAGES = """
    messagebus ssh _ssh sshd munge slurm slurmrestd mysql dma crontab polkitd ssl-cert postfix postdrop exim Debian-exim
    tcpdump uuidd tss netdev rdma fuse _rpc rpc statd _chrony chrony ntp dnsmasq avahi dhcpcd cloudsdk
    nvidia-persistenced nvidia-dcgm postgres
"""
"""Of packages that the images get (components/local/host/images.py, scripts/image) or that sites add to them."""
_UBUNTU = """
    syslog landscape pollinate fwupd-refresh usbmux lxd ubuntu
"""
"""Of Ubuntu's images for clouds, `ubuntu` being cloud-init's own user, who may become root."""

PRIVILEGED = frozenset(
    "root adm admin disk docker google-sudoers incus incus-admin kmem libvirt libvirt-qemu lxd shadow staff sudo sys "
    "ubuntu wheel".split()
)
"""Groups by whose membership somebody becomes root, or reads what is root's: sudoers of Debian (sudo) and Ubuntu (also
admin), Google's guest agent (google-sudoers), pam_wheel (wheel), container and machine managers (docker, lxd, incus,
libvirt), raw disks and memory (disk, kmem), passwords and logs (shadow, adm), /usr/local (staff)."""

SYSTEM = frozenset(f"{_BASE} {_SYSTEMD} {_PACKAGES} {_UBUNTU}".split()) | PRIVILEGED
"""Users and groups that belong to the operating system or to daemons."""


def of_the_system(name: str) -> bool:
    """Whether a name is the operating system's."""
    return name in SYSTEM or name.startswith("systemd-")
