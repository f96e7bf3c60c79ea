"""Steps of an image on a real machine, twice: those whose packages a machine without a way out can be given.

Its apt has one source: a folder with packages made here, empty but for a daemon that would start if it were let to.
"""

import base64
import json
from collections.abc import Callable, Iterator

import pytest

from cluster.platforms.gcp.image import LOG, ROOT, program, step
from tests.local.real import RealStack

pytestmark = pytest.mark.e2e

STEPS = (
    "10-updates", "13-upgrade", "18-nfs", "28-aperture", "50-localssd", "52-limits", "54-network", "56-hostname",
    "92-image",
)  # fmt: skip
KERNEL = "5.15.0-1077-gcp"
SHIPPED = "6.8.0-1021-gcp"
PACKAGES: dict[str, tuple[str, ...]] = {
    "google-guest-agent": (),
    "mdadm": (),
    "nfs-common": (),
    "nfs-kernel-server": ("lib/systemd/system/nfs-kernel-server.service",),
    "linux-gcp": (),
    "linux-gcp-headers-5.15.0-1077": (),
    **{f"linux-image-{kernel}": (f"boot/vmlinuz-{kernel}",) for kernel in (KERNEL, SHIPPED)},
    **{f"linux-modules-{kernel}": (f"lib/modules/{kernel}/kernel/a.ko",) for kernel in (KERNEL, SHIPPED)},
    f"linux-modules-extra-{KERNEL}": (),
    f"linux-headers-{KERNEL}": (f"lib/modules/{KERNEL}/build/Makefile",),
}
"""Packages by name, and the files that are of interest in each."""
ON_A_NEW_MACHINE = ("google-guest-agent", "linux-gcp", f"linux-image-{SHIPPED}", f"linux-modules-{SHIPPED}")
MAKE = r"""
set -eu
make_package() {
    name=$1 folder=/root/made/$1 file=${1}_1.0_all.deb
    shift
    mkdir -p "$folder/DEBIAN" "$folder/usr/lib/hpc-test"
    touch "$folder/usr/lib/hpc-test/$name"
    for path; do
        mkdir -p "$(dirname "$folder/$path")"
        printf '[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n' >"$folder/$path"
    done
    printf 'Package: %s\nVersion: 9:1.0\nArchitecture: all\nMaintainer: T <t@hpc>\nDescription: test\n' "$name" \
        >"$folder/DEBIAN/control"
    if [ "$name" = nfs-kernel-server ]; then
        printf '#!/bin/sh\ndeb-systemd-helper enable %s.service\ndeb-systemd-invoke start %s.service\n' "$name" \
            "$name" >"$folder/DEBIAN/postinst"
        chmod 755 "$folder/DEBIAN/postinst"
    fi
    dpkg-deb -Znone --build --root-owner-group "$folder" /root/repository >/dev/null
    printf '%s\nFilename: ./%s\nSize: %s\nSHA256: %s\n\n' "$(cat "$folder/DEBIAN/control")" "$file" \
        "$(stat -c %s "/root/repository/$file")" "$(sha256sum "/root/repository/$file" | cut -d' ' -f1)" \
        >>/root/repository/Packages
}
mkdir -p /root/repository
"""
USE = r"""
printf 'SHA256:\n %s %s Packages\n' "$(sha256sum /root/repository/Packages | cut -d' ' -f1)" \
    "$(stat -c %s /root/repository/Packages)" >/root/repository/Release
# A rehearsal's image lacks what no machine of it needs, and apt would take away what depends on that.
sed -i -E '/^(Pre-)?Depends:/d' /var/lib/dpkg/status
rm -f /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/root/repository ./' >/etc/apt/sources.list
apt-get -qq update
apt-get -qq install NEW >/dev/null
apt-mark manual $(dpkg-query --show --showformat='${Package} ') >/dev/null
"""
SEEN = "find /etc /usr/local/lib/hpc -type f -newermt 2000-01-01 -exec stat -c '%n %a %Y' {} + | sort | sha256sum"


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., RealStack]) -> Iterator[RealStack]:
    """A machine on which the steps have been run once."""
    made = new_stack("tj")
    made.up(made.machine("m0"))
    packages = "".join(f"make_package {name} {' '.join(files)}\n" for name, files in PACKAGES.items())
    made.ssh("m0", MAKE + packages + USE.replace("NEW", " ".join(ON_A_NEW_MACHINE)))
    give(made, *STEPS)
    made.ssh("m0", "bash /root/install")
    yield made
    made.down()


def give(stack: RealStack, *names: str, **parameters: str) -> None:
    """Put a program of these steps on the machine."""
    known = {"BAKE": "1", **parameters}
    text = base64.b64encode(program("test", [step(name, known) for name in names], known).encode()).decode()
    stack.ssh("m0", f"echo {text} | base64 -d >/root/install")


def test_all_steps_run_and_a_second_run_changes_nothing(stack: RealStack) -> None:
    assert stack.ssh("m0", f"cat {ROOT}/state") == "done"
    before = stack.ssh("m0", SEEN)
    stack.ssh("m0", f"rm -r {ROOT}/done {LOG} && bash /root/install")
    assert "step 9 of 9: image" in stack.ssh("m0", f"cat {LOG}")
    assert "wrote" not in stack.ssh("m0", f"grep -v policy-rc.d {LOG}")
    assert stack.ssh("m0", SEEN) == before


def test_automatic_updates_are_disabled(stack: RealStack) -> None:
    assert sorted(stack.ssh("m0", "apt-mark showhold").split()) == sorted(ON_A_NEW_MACHINE)
    assert stack.ssh("m0", "systemctl is-enabled apt-daily.timer apt-daily-upgrade.timer || true").split() == [
        "masked",
        "masked",
    ]
    assert 'Unattended-Upgrade "0"' in stack.ssh("m0", "apt-config dump APT::Periodic")


def test_packages_are_upgraded_except_held_ones(stack: RealStack) -> None:
    newer = MAKE.replace("9:1.0", "9:2.0").replace("_1.0_", "_2.0_")
    release = USE.partition("# A rehearsal")[0]
    stack.ssh("m0", f"{newer}make_package mdadm\nmake_package google-guest-agent\n{release}rm /run/hpc-apt-lists")
    give(stack, "13-upgrade")
    stack.ssh("m0", f"rm {ROOT}/done/13-upgrade; bash /root/install")
    seen = stack.ssh("m0", "dpkg-query -W -f '${Package} ${Version}\\n' mdadm google-guest-agent")
    assert seen.split("\n") == ["google-guest-agent 9:1.0", "mdadm 9:2.0"]


def test_the_image_records_its_recipe_and_snapshot(stack: RealStack) -> None:
    found = json.loads(stack.ssh("m0", "cat /etc/hpc/image.json"))
    assert (found["baked"], found["recipe"]) == (1, "")


def test_daemons_are_not_started_at_installation_and_may_start_later(stack: RealStack) -> None:
    assert stack.ssh("m0", "dpkg-query -W -f '${db:Status-Status}' nfs-kernel-server") == "installed"
    assert stack.ssh("m0", "systemctl is-active nfs-kernel-server; systemctl is-enabled nfs-kernel-server; true") == (
        "inactive\ndisabled"
    )
    assert stack.ssh("m0", "ls /usr/sbin/policy-rc.d 2>/dev/null || true") == ""


def test_services_that_the_set_up_started_keep_running(stack: RealStack) -> None:
    stack.ssh("m0", "mkdir -p /etc/hpc/started; systemctl enable --now --quiet nfs-kernel-server")
    give(stack, "18-nfs")
    stack.ssh("m0", f"rm {ROOT}/done/18-nfs; bash /root/install")
    told = "systemctl is-active nfs-kernel-server; systemctl is-enabled nfs-kernel-server"
    assert stack.ssh("m0", f"{told}; rm -r /etc/hpc/started") == "active\nenabled"


def test_the_name_is_written_at_a_boot(stack: RealStack) -> None:
    stack.ssh("m0", "echo builder >/etc/hostname; systemctl restart hpc-hostname")
    assert stack.ssh("m0", "cat /etc/hostname") == "m0"


def test_one_kernel_is_left_and_held(stack: RealStack) -> None:
    # The machine says that the image's kernel runs, as it does after the restart that the step asks for.
    stack.ssh("m0", f"printf '#!/bin/sh\\necho {KERNEL}\\n' >/usr/local/bin/uname; chmod +x /usr/local/bin/uname")
    give(stack, "12-kernel", KERNEL=KERNEL)
    stack.ssh("m0", "bash /root/install; rm /usr/local/bin/uname")
    assert stack.ssh("m0", f"cat {ROOT}/state; ls /boot; ls /lib/modules").split() == [
        "done",
        f"vmlinuz-{KERNEL}",
        KERNEL,
    ]
    left = stack.ssh("m0", "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' 'linux-*' | sed -n 's/^installed //p'")
    ours = {name for name in PACKAGES if name.startswith("linux-") and KERNEL in name}
    assert ours <= set(left.split())
    assert not {name for name in left.split() if SHIPPED in name or name == "linux-gcp"}
    assert ours <= set(stack.ssh("m0", "apt-mark showhold").split())


def test_an_unavailable_kernel_is_named(stack: RealStack) -> None:
    give(stack, "12-kernel", KERNEL="5.15.0-9999-gcp")
    assert "error: apt-get could not install linux-image-5.15.0-9999-gcp" in stack.ssh(
        "m0", "bash /root/install 2>&1 || true"
    )


def test_the_final_checks_report_every_error(stack: RealStack) -> None:
    give(stack, "90-smoke", SLURM_VERSION="25.05.8", LUSTRE="exascaler")
    said = stack.ssh("m0", "bash /root/install 2>&1 || true").splitlines()
    assert "ok: the slurm user has uid 64030" in said
    assert "ok: slurmctld" in said
    wrong = [line.split(":")[1].strip() for line in said if line.startswith("wrong: ")]
    assert {"Slurm 25.05.8", "Lustre's tools", "NFS"} <= set(wrong)
    assert said[-1] == f"error: {len(wrong)} of the checks above failed: this image would not work"


class TestLocalSsd:
    def test_a_machine_without_local_disks_boots(self, stack: RealStack) -> None:
        stack.ssh("m0", "mkdir -p /etc/enroot/enroot.conf.d; echo x >/etc/enroot/enroot.conf.d/50-localssd.conf")
        stack.ssh("m0", "systemctl restart hpc-localssd")
        assert stack.ssh("m0", "systemctl is-active hpc-localssd") == "active"
        assert stack.ssh("m0", "cat /etc/enroot/enroot.conf.d/50* /run/hpc/docker.env 2>/dev/null || true") == ""

    def test_local_disks_are_striped_mounted_and_used(self, stack: RealStack) -> None:
        # mdadm, mkfs and mount as they are called: the machine has no disk of its own, but a file system in memory.
        stand_ins = r"""
            mkdir -p /root/bin /dev/md
            printf '#!/bin/sh\necho mdadm "$@" >>/root/calls\n[ "$1" = --create ] && touch "$2"\n' >/root/bin/mdadm
            printf '#!/bin/sh\necho mkfs "$@" >>/root/calls\n' >/root/bin/mkfs.ext4
            printf '#!/bin/sh\necho mount "$@" >>/root/calls\nexec /bin/mount -t tmpfs hpc "$4"\n' >/root/bin/mount
            chmod +x /root/bin/*
            export PATH=/root/bin:$PATH HPC_SSDS='/dev/zero /dev/null'
            /usr/local/lib/hpc/image/localssd && /usr/local/lib/hpc/image/localssd"""
        stack.ssh("m0", stand_ins)
        array = "--name=localssd --homehost=any --level=0 --raid-devices=2 --force --run"
        assert stack.ssh("m0", "cat /root/calls").splitlines() == [
            "mdadm --assemble --quiet /dev/md/localssd /dev/zero /dev/null",
            f"mdadm --create /dev/md/localssd {array} /dev/zero /dev/null",
            "mkfs -q -F -m 0 /dev/md/localssd",
            "mount -o discard,defaults /dev/md/localssd /mnt/localssd",
        ]
        assert stack.ssh("m0", "stat -c %a /mnt/localssd; cat /run/hpc/docker.env") == (
            "1777\nHPC_DOCKER=--data-root=/mnt/localssd/docker"
        )
        assert "ENROOT_DATA_PATH /mnt/localssd/${UID}/enroot/data" in stack.ssh("m0", "cat /etc/enroot/enroot.conf.d/*")


class TestApertures:
    DEVICES = r"""
        rm -rf /root/pci /root/shown; mkdir -p /root/shown
        for n in 1 2; do
            mkdir -p /root/pci/$n; echo 0x1ae0 >/root/pci/$n/vendor; echo 0x0084 >/root/pci/$n/device
        done
        mkdir -p /root/pci/9; echo 0x10de >/root/pci/9/vendor; echo 0x2330 >/root/pci/9/device
        for n in {}; do mkdir -p /root/shown/$n; touch /root/shown/$n/resource; done
        export HPC_PCI=/root/pci HPC_APERTURES=/root/shown HPC_SECONDS=0
        /usr/local/lib/hpc/image/wait-for-apertures 2>&1; echo $?"""

    def test_slurmd_starts_if_there_are_no_gpus_or_all_are_visible(self, stack: RealStack) -> None:
        assert stack.ssh("m0", "/usr/local/lib/hpc/image/wait-for-apertures; echo $?") == "0"
        assert stack.ssh("m0", self.DEVICES.format("1 2")) == "0"

    def test_a_missing_gpu_is_a_failure_that_systemd_retries(self, stack: RealStack) -> None:
        assert stack.ssh("m0", self.DEVICES.format("1")).splitlines() == [
            "1 of 2 aperture devices are in /root/shown: jobs on several nodes would run slowly over plain TCP",
            "255",
        ]


def test_the_clean_up_removes_identities_of_the_machine(stack: RealStack) -> None:
    give(stack, "95-clean-up")
    keys = "mkdir -p /root/kept && cp -p /etc/ssh/ssh_host_* /etc/machine-id /root/.ssh/authorized_keys /root/kept"
    back = "cd /root/kept && cp -p ssh_host_* /etc/ssh && cp machine-id /etc && cp -p authorized_keys /root/.ssh"
    looked = (
        "bash /root/install; ls /etc/ssh/ssh_host_* /etc/hostname /etc/munge/munge.key /root/.ssh/authorized_keys "
        "/var/tmp/hpc 2>/dev/null; stat -c %s /etc/machine-id; find /var/lib/apt/lists -type f | wc -l"
    )
    # The keys by which we got in are put back before this login ends.
    assert stack.ssh("m0", f"{keys}; {looked}; {back}").split() == ["0", "0"]
    assert stack.ssh("m0", f"cat {ROOT}/state") == "done"
