"""One virtual machine with a kernel of its own, emulated: no KVM, no network, no privilege of the host's in it.

Its root is a base image of local machines on a disk; its kernel is the same release's, for clouds, which has the disk's
driver (NVMe) and file system (ext4) built in and so needs no initial RAM disk (CONFIG_BLK_DEV_NVME, CONFIG_EXT4_FS).
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from components.local.host.images import SUITES, ensure_image, host_sources
from components.local.host.paths import images_root
from scripts.hostfiles import locked

BASE = "debian-13"
DISK_BYTES = 1_000_000_000
"""Room for the image (0.5 GB) and what the machine writes; the file has holes where there is nothing."""

UNNEEDED = (
    "dev-mqueue.mount", "modprobe@.service", "modprobe@configfs.service", "modprobe@fuse.service",
    "proc-sys-fs-binfmt_misc.automount", "run-lock.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount", "systemd-modules-load.service", "systemd-random-seed.service", "tmp.mount",
)  # fmt: skip
"""Units of each boot, whose processes take an emulated machine a second each: an empty file masks a unit."""
GENERATORS = Path("usr/lib/systemd/system-generators")
"""systemd runs each of these programs at the boot and whenever it reads its units again; an empty file in /etc is in
the place of one (systemd.generator(7))."""


def kernel(suite: str) -> Path:
    """The release's kernel for clouds, fetched once and kept beside the base images."""
    folder = images_root().with_name("test-kernels")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / suite
    with locked(folder / ".lock"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                _fetch(suite, Path(scratch)).rename(kept)
    return kept


def _fetch(suite: str, scratch: Path) -> Path:
    files: list[str] = []
    for number, source in enumerate(host_sources(suite)):
        path = scratch / f"{number}{source.suffix}"
        path.write_text(source.text)
        files.append(str(path))
    root = scratch / "root"
    command = ["mmdebstrap", "--quiet", "--variant=extract", "--include=linux-image-cloud-amd64"]
    _run(*command, '--aptopt=APT::Install-Recommends "0"', suite, str(root), *files)  # fmt: skip
    return next((root / "boot").glob("vmlinuz-*"))


def disk(folder: Path, files: Mapping[str, str | Path]) -> Path:
    """A disk with the base image and `files` (path in the machine to text, or to a file or folder) in `folder`."""
    image = ensure_image(BASE, images_root(), print)
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()
    masked = [f"/etc/systemd/system/{unit}" for unit in UNNEEDED]
    masked += [f"/etc/systemd/{GENERATORS.name}/{program.name}" for program in (image / GENERATORS).iterdir()]
    for name, content in {**dict.fromkeys(masked, ""), **files}.items():
        path = folder / "upper" / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        elif content.is_dir():
            shutil.copytree(content, path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(content, path)
    made = folder / "disk"
    layers = f"lowerdir={image},upperdir={folder}/upper,workdir={folder}/work"
    # The mount ends with the namespace. To compile in the emulated machine takes it seconds.
    script = """
        mount -t overlay overlay -o "$1" "$2" && chroot "$2" python3 -m compileall -q /opt &&
        truncate -s "$4" "$3" && exec mke2fs -q -F -t ext4 -d "$2" "$3"
    """
    _run(
        "unshare", "--mount", "--propagation", "private", "sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {script}", "sh",
        layers, str(folder / "root"), str(made), str(DISK_BYTES),
    )  # fmt: skip
    return made


def boot(disk: Path, unit: str, *, seconds: int) -> str:
    """Run a machine of two sockets, four cores and 1.2 GB from its disk, with `unit` and what it needs, until it powers
    itself off.

    Its clock counts its instructions, two nanoseconds each, and jumps to the next timer when its cores are idle
    (-icount, qemu-options.hx of QEMU 7.2): however slow the host is, nothing in the machine takes longer than on
    another host, and no timeout of Slurm, systemd or MUNGE ends there because the host is busy.

    Returns what it wrote to its second serial port. AssertionError, with what is to be read on its console, when it did
    not do so within `seconds` of the host.
    """
    said, console = disk.with_name("said"), disk.with_name("console")
    asked = (
        # Without comparing the cores' clocks, which are one.
        "console=ttyS0 root=/dev/nvme0n1 rw mitigations=off tsc=reliable lsm=capability panic=-1 "
        f"systemd.show_status=false systemd.unit={unit}"
    )
    command = [
        # It ends with us, whichever way we end; and other tests on this host come first.
        "setpriv", "--pdeathsig", "KILL", "nice", "-n", "3",
        # Instructions that copy any number of bytes are emulated byte by byte: Linux is not to have them.
        "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max,-erms,-fsrm",
        "-icount", "shift=1,sleep=off", "-rtc", "clock=vm",
        "-smp", "4,sockets=2,cores=2,threads=1",
        "-m", "1200", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
        "-kernel", str(kernel(SUITES[BASE])),
        "-append", asked,
        "-drive", f"if=none,id=disk,format=raw,cache=unsafe,file={disk}", "-device", "nvme,drive=disk,serial=disk",
        "-serial", f"file:{console}", "-serial", f"file:{said}",
    ]  # fmt: skip
    try:
        _run(*command, seconds=seconds)
        assert said.stat().st_size, "the machine ended without a word"
    except (AssertionError, subprocess.TimeoutExpired) as error:
        seen = "\n".join(path.read_text(errors="replace")[-3000:] for path in (said, console) if path.exists())
        raise AssertionError(f"{error}\nIt told, and its console ends with:\n{seen}") from None
    return said.read_text(errors="replace")


def _run(*command: str, seconds: float | None = None) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
