"""Base images: their recipes, the hash that names each, the build, and the removal of unused ones."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from components.local.host.paths import HostError, host_root
from scripts.hostfiles import locked, write_atomically

HERE = Path(__file__).parent
BUILD = HERE / "build-image.sh"
TRIM = HERE / "trim-image.sh"
ROOTFS = HERE.parent / "rootfs"

SUITES = {"debian-12": "bookworm", "debian-13": "trixie"}
"""Base images by their name in `image.base`, and the Debian release that each is."""

SLURM = {("debian-13", "26.05"): "forky"}
"""The Debian release whose packages of Slurm an image gets, for a release of Slurm that its own does not have."""
WITH_SLURM = (*"slurm-wlm-basic-plugins slurm-wlm-mysql-plugin libhwloc15 libhwloc-plugins libze1".split(),)
"""Packages that those of Slurm need in the version of that release: apt does not take them from there by itself."""

PACKAGES = (
    *"systemd systemd-sysv dbus iproute2 usr-is-merged openssh-server".split(),
    *"munge slurmctld slurmd slurm-client slurmdbd libpmix2 mariadb-server".split(),
    "python3",  # the node's set-up is Python
    "logrotate",  # the daemons' logs grow, and those of prologs
    "lsb-release",  # prologs of the field ask it which system they run on
    "libfaketime",  # a machine's clock can be put wrong; it is the host's otherwise
    *"bsd-mailx dma".split(),  # /usr/bin/mail, and an agent that delivers on the machine itself
    *"procps psmisc iputils-ping less nano-tiny".split(),  # for debugging
)
MORE: dict[str, tuple[str, ...]] = {
    "debian-13": (
        "libpam-slurm-adopt",  # users log in to the nodes of their jobs
        *"slurmrestd slurm-wlm-jwt-plugin".split(),  # REST with tokens
        "xauth",  # X11 of jobs
        *"python3-venv git tmux".split(),  # for users of login machines, whose editor is nano-tiny
    ),
}
"""Further packages of some images."""


@dataclass(frozen=True)
class BaseImageRecipe:
    base: str
    suite: str
    packages: tuple[str, ...]
    own: tuple[str, ...] = ()
    """The ones of `packages` that the stack file asks for (`image.packages`), beyond what every image has."""
    slurm: str = ""
    """The release of Slurm, where it is not the system's own."""

    @property
    def digest(self) -> str:
        """16 hex digits that name the image: a hash of the recipe and our files, not of the packages' versions.

        An image is built once and kept. To get newer packages, remove its folder.
        """
        content = hashlib.sha256()
        for part in (self.base, self.suite, platform.machine(), *self.packages):
            content.update(part.encode() + b"\0")
        for path in sorted({BUILD, TRIM, *(path for path in ROOTFS.rglob("*") if path.is_file())}):
            executable = b"x" if path.stat().st_mode & 0o100 else b"-"
            content.update(str(path.relative_to(HERE.parent)).encode() + b"\0" + executable + path.read_bytes())
        return content.hexdigest()[:16]


def recipe(base: str, packages: Iterable[str] = (), slurm: str = "") -> BaseImageRecipe:
    """Return the recipe for `image.base`, `image.packages` and a release of Slurm. Raises HostError: there is none.

    The order of `packages` has no effect, nor has a package that every image has.
    """
    if base not in SUITES:
        msg = f"image.base: {base!r} can't be made on this machine; allowed here: {', '.join(sorted(SUITES))}"
        raise HostError(msg)
    usual = (*PACKAGES, *MORE.get(base, ()))
    own = tuple(sorted(set(packages) - set(usual)))
    later = SLURM.get((base, slurm))
    if later:
        usual = tuple(
            f"{name}/{later}" if "slurm" in name or name in WITH_SLURM else name for name in usual + WITH_SLURM
        )
    return BaseImageRecipe(base, SUITES[base], (*usual, *own), own, slurm if later else "")


_FETCHED = ("http://", "https://", "mirror+http://", "mirror+https://")


@dataclass(frozen=True)
class AptSource:
    """An apt source file for mmdebstrap: deb822 stanzas or one-line entries, never both in one file."""

    suffix: str
    """`.sources` or `.list`."""
    text: str
    suites: frozenset[str]


def host_sources(
    suite: str, etc: Path = Path("/etc/apt"), os_release: Path = Path("/etc/os-release")
) -> tuple[AptSource, ...]:
    """Return the host's sources with `suite`, its updates and security suites. If there are none, those of the host's
    own Debian release with `suite` in its place; none on another system."""
    if sources := _sources_with(suite, etc):
        return sources
    own = _release(os_release)
    return tuple(_renamed(source, own, suite) for source in _sources_with(own, etc)) if own else ()


def _release(os_release: Path) -> str:
    """Return the code name of the host's Debian; empty for any other system."""
    fields = dict(line.split("=", 1) for line in os_release.read_text().splitlines() if "=" in line)
    return fields.get("VERSION_CODENAME", "").strip('"') if fields.get("ID", "").strip('"') == "debian" else ""


def _renamed(source: AptSource, own: str, suite: str) -> AptSource:
    """Return the source for another release."""
    fields = r"(?m)^(Suites:.*)$" if source.suffix == ".sources" else r"(\S+ main)$"
    text = re.sub(fields, lambda match: re.sub(rf"\b{own}\b", suite, match[1]), source.text)
    return AptSource(source.suffix, text, frozenset(re.sub(rf"\b{own}\b", suite, name) for name in source.suites))


def _sources_with(suite: str, etc: Path) -> tuple[AptSource, ...]:
    """Return the sources with `suite`, its updates and security suites; none if `suite` itself is missing."""
    sources: list[AptSource] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        try:
            text = path.read_text(errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            continue
        if path.suffix == ".sources":
            sources += stanzas(text, suite)
        elif path.suffix == ".list":
            sources += one_liners(text, suite)
    return tuple(sources) if any(suite in source.suites for source in sources) else ()


def stanzas(text: str, suite: str) -> Iterator[AptSource]:
    """Yield the sources of a deb822 file (sources.list(5), DEB822-STYLE FORMAT) for `suite` and its companions."""
    uncommented = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n\s*\n", uncommented):
        fields = {name.lower(): value for name, value in _fields(block)}
        suites = _companions(fields.get("suites", "").split(), suite)
        signed_by = fields.get("signed-by", "")
        if (
            "deb" not in fields.get("types", "").split()
            or fields.get("enabled", "yes").strip().lower() in {"no", "false", "0", "off"}
            or not suites
            or not _is_debian(fields.get("uris", "").split(), fields.get("components", "").split(), signed_by)
        ):
            continue
        kept = {**dict(_fields(block)), "Types": "deb", "Suites": " ".join(suites), "Components": "main"}
        yield AptSource(".sources", "".join(f"{name}: {value}\n" for name, value in kept.items()), frozenset(suites))


def one_liners(text: str, suite: str) -> Iterator[AptSource]:
    """Yield the sources of a one-line file (sources.list(5), ONE-LINE-STYLE FORMAT) in the same way."""
    for line in text.splitlines():
        match = re.fullmatch(r"\s*deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+([^#]*?)\s*(#.*)?", line)
        if not match:
            continue
        options, uri, line_suite, components = match[1] or "", match[2], match[3], match[4].split()
        signed_by = options if "signed-by" in options.lower() else ""
        if _companions([line_suite], suite) and _is_debian([uri], components, signed_by):
            yield AptSource(".list", f"deb {options}{uri} {line_suite} main\n", frozenset({line_suite}))


def _fields(block: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a deb822 stanza. A continued line keeps its leading space, which a key in Signed-By needs."""
    name, lines = "", list[str]()
    for line in block.splitlines():
        if line[:1].isspace() and name:
            lines.append(line)
        elif ":" in line:
            if name:
                yield name, "\n".join(lines)
            name, value = line.split(":", 1)
            lines = [value.strip()]
    if name:
        yield name, "\n".join(lines)


def _companions(suites: Iterable[str], suite: str) -> list[str]:
    """Return those of the suites that are `suite`, its updates or its security suite."""
    return [name for name in suites if name in (suite, f"{suite}-updates", f"{suite}-security")]


def _is_debian(uris: list[str], components: list[str], signed_by: str) -> bool:
    """Return whether this is the distribution's own archive or a mirror of it.

    Vendors name their suites after the release too, but have another key and another path.
    """
    if not uris or "main" not in components or not all(uri.startswith(_FETCHED) for uri in uris):
        return False
    return "debian-archive" in signed_by or all(re.search(r"/debian(-security)?/?$", uri) for uri in uris)


DISK_NEEDED = 1_300_000_000
"""Free disk space for a build, in bytes: twice the image's 450 MB, the packages, and a reserve."""
MEMORY_NEEDED = 4_000_000_000
"""Free memory for a build in memory, in bytes: it takes up to 1 GB."""

KEPT_SECONDS = 24 * 3600
"""Time for which an unused image is kept after its last use."""
_ROOTS = ".roots"
"""Folder of the cache with a file for each root that has machines on its images."""

Report = Callable[[str], None]


def image_root(images: Path, digest: str) -> Path:
    """Return the path of an image's root file system, which may not exist."""
    return images / digest / "root"


def has_image(images: Path, digest: str) -> bool:
    return (images / digest / "image.json").exists()


def ensure_image(base: str, images: Path, report: Report, packages: Iterable[str] = (), slurm: str = "") -> Path:
    """Build the image for `image.base`, `image.packages` and a release of Slurm if it does not exist, and return its
    root. Raises HostError: the build failed.
    """
    wanted = recipe(base, packages, slurm)
    _close(images)
    if has_image(images, wanted.digest):
        os.utime(images / wanted.digest / "image.json")  # `prune` keeps images that were used lately
        return image_root(images, wanted.digest)
    lock = images / ".build.lock"
    with locked(lock, wait=False) as first:
        if first:
            return _build(wanted, images, report)
    report(f"base image {base}: waiting for another run that builds it")
    with locked(lock):
        # If the other run failed, this one builds the image.
        if has_image(images, wanted.digest):
            return image_root(images, wanted.digest)
        return _build(wanted, images, report)


def _close(images: Path) -> None:
    """Close the images to users of this host: an old one has set-uid programs with holes that are known since.

    Root mounts them as layers of machines, whose users then do not pass through these folders.
    """
    for record in images.glob("*/image.json"):
        with suppress(FileNotFoundError):  # another run prunes it
            record.parent.chmod(0o700)


def _build(wanted: BaseImageRecipe, images: Path, report: Report) -> Path:
    """Build the image. The caller holds the build lock."""
    if has_image(images, wanted.digest):
        return image_root(images, wanted.digest)
    sweep_builds(images)
    _check_space(images)
    started = time.monotonic()
    report(f"base image {wanted.base}: building it (once; about half a minute)")
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=images))
    try:
        # apt downloads as its own user during the build; mkdtemp creates folders with mode 0700.
        work.chmod(0o755)
        # Temporary files in this folder are removed with it, even if the tools are killed.
        scratch = work / "tmp"
        scratch.mkdir(mode=0o700)
        try:
            _run(wanted, _command(wanted, work), report, images, scratch)
        except _FullError:
            if not wanted.own or shutil.disk_usage(images).free < DISK_NEEDED:
                raise
            report(f"base image {wanted.base}: its packages are too large for memory: building it on the disk")
            shutil.rmtree(work / "root.half", ignore_errors=True)
            _run(wanted, _command(wanted, work, memory=False), report, images, scratch)
        # Packages enable their services; the node's set-up enables those that a role needs.
        for link in (work / "root/etc/systemd/system/multi-user.target.wants").glob("prometheus*.service"):
            link.unlink()
        meta = {"base": wanted.base, "suite": wanted.suite, "packages": wanted.packages, "made": int(time.time())}
        meta |= {"own": wanted.own} if wanted.own else {}
        if wanted.slurm:
            meta["slurm"] = wanted.slurm
            _check_release(wanted, work / "root")
        write_atomically(work / "image.json", json.dumps(meta, indent=1))
        work.chmod(0o700)  # see _close
        for spent in (work / "stage", scratch):
            shutil.rmtree(spent, ignore_errors=True)
        work.rename(images / wanted.digest)
    except OSError as error:
        msg = f"base image {wanted.base}: {error.strerror or error} ({images}); nothing of it was kept"
        raise HostError(msg) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report(f"base image {wanted.base}: made in {time.monotonic() - started:.0f} s")
    with suppress(OSError, ValueError, KeyError):
        prune(images, report)
    return image_root(images, wanted.digest)


class _FullError(HostError):
    """The disk became full, or the memory in which the image is unpacked."""


def _command(wanted: BaseImageRecipe, work: Path, *, memory: bool = True) -> list[str]:
    """Return the command of the build, which is in memory if that is allowed and there is enough."""
    files: list[str] = []
    later = SLURM.get((wanted.base, wanted.slurm))
    for number, source in enumerate(host_sources(wanted.suite) + (host_sources(later) if later else ())):
        path = work / f"{number}{source.suffix}"
        path.write_text(source.text)
        files.append(str(path))
    if later:
        # Packages come from the later release only if they are requested of it (apt-get(8), PACKAGE/RELEASE), or if
        # no other release has them.
        files.append(f'--aptopt=APT::Default-Release "{wanted.suite}"')
        # The index of an unreleased suite is valid for a week, and mirrors that keep the state of a day are older.
        files.append('--aptopt=Acquire::Check-Valid-Until "false"')
    in_memory = "yes" if memory and _free_memory() >= MEMORY_NEEDED else "no"
    # If this process is killed, so is unshare, and with it every process in the new namespaces.
    apart = "setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc"
    build = (BUILD, work, in_memory, wanted.suite, ",".join(wanted.packages), ROOTFS, TRIM)
    return [*apart.split(), *map(str, build), *files]


def _run(wanted: BaseImageRecipe, command: Sequence[str], report: Report, images: Path, scratch: Path) -> None:
    """Run the build and report its steps (mmdebstrap's lines that begin with `I: `). Raises HostError: it failed."""
    output: list[str] = []
    env = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LC_ALL": "C.UTF-8", "TMPDIR": str(scratch)}
    env |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        cwd="/",
        text=True,
        errors="replace",
    ) as build:
        for line in build.stdout or ():
            output.append(line.rstrip())
            if line.startswith("I: ") and line.rstrip().endswith("..."):
                report(f"base image {wanted.base}: {line[3:].strip()}")
    if build.returncode == 0:
        return
    if any("No space left on device" in line for line in output):
        free = shutil.disk_usage(images).free
        raise _FullError(
            f"base image: the disk of {images} became full while it was made ({free // 10**6} MB free now, "
            f"{DISK_NEEDED // 10**6} MB needed); nothing of it was kept: free some space and run again"
        )
    if missing := _missing_packages(output):
        raise HostError(
            f"base image: image.packages: {wanted.base} has no package {', '.join(missing)}; nothing of it was kept: "
            "correct the name (packages.debian.org finds it), or remove it"
        )
    tail = "\n".join(f"  {line}" for line in output[-15:])
    msg = f"base image: mmdebstrap failed (status {build.returncode}); nothing of it was kept. Its output:\n{tail}"
    raise HostError(msg)


def _check_release(wanted: BaseImageRecipe, root: Path) -> None:
    """Raise HostError if the image has another release of Slurm: an unreleased Debian changes."""
    text = (root / "var/lib/dpkg/status").read_text()
    match = re.search(r"^Package: slurmctld\n(?:.+\n)*?Version: (.+)$", text, re.MULTILINE)
    if match is None or not match[1].startswith(f"{wanted.slurm}."):
        raise HostError(
            f"base image: slurm.version: {SLURM[wanted.base, wanted.slurm]} has Slurm {match[1] if match else '?'} by "
            f"now, not {wanted.slurm}; nothing of it was kept: write another release, or update this program"
        )


def _missing_packages(output: Sequence[str]) -> list[str]:
    """Return the packages in the errors of apt-get (apt 2.6.1) about packages that no source has."""
    patterns = ("E: Unable to locate package (.+)", "E: Package '(.+)' has no installation candidate")
    names = [match[1] for line in output for pattern in patterns if (match := re.fullmatch(pattern, line.strip()))]
    return list(dict.fromkeys(names))


def _check_space(images: Path) -> None:
    free = shutil.disk_usage(images).free
    if free < DISK_NEEDED:
        raise HostError(
            f"base image: {images} has {free // 10**6} MB free and making it needs {DISK_NEEDED // 10**6} MB: "
            "free some space, or set HPC_LOCAL_IMAGES (images alone) or HPC_LOCAL_ROOT to a folder on a larger disk"
        )


def _free_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def sweep_builds(images: Path) -> None:
    """Remove the folders of killed builds. The caller holds the build lock, so no build is running."""
    for half in images.glob(".build-*"):
        shutil.rmtree(half, ignore_errors=True)


def note_root(images: Path, root: Path) -> None:
    """Record that machines under `root` use images of this cache, so that `prune` finds stopped machines too."""
    note = images / _ROOTS / hashlib.sha256(str(root).encode()).hexdigest()[:16]
    if not note.exists():
        write_atomically(note, str(root))


def prune(images: Path, report: Report) -> list[str]:
    """Remove images that no machine of any state or root uses. Returns the digests removed.

    Images that a new stack would use stay, and images that were used within a day, since another version of this
    program may be about to create machines from them. The caller holds the build lock.
    """
    removed: list[str] = []
    used = _used(images)
    for path in images.glob("*/image.json"):
        meta, digest = json.loads(path.read_text()), path.parent.name
        base, packages = meta["base"], tuple(meta.get("own", ()))
        current = base in SUITES and recipe(base, packages, meta.get("slurm", "")).digest == digest
        if digest in used or current or time.time() - path.stat().st_mtime < KEPT_SECONDS:
            continue
        report(f"removing base image {digest} ({' '.join((base, *packages))}), which no machine uses")
        # Renamed first, so that a killed removal leaves no partial image.
        shutil.rmtree(path.parent.rename(images / f".build-{digest}-removed"))
        removed.append(digest)
    return removed


def _used(images: Path) -> set[str]:
    """Return the images of all recorded machines under roots that use the cache, and of all running machines. Raises
    OSError, ValueError, KeyError: a record can't be read, so no image counts as unused."""
    roots = {images.parent, host_root()}
    for note in (images / _ROOTS).glob("[!.]*"):
        if (root := Path(note.read_text())).is_dir():
            roots.add(root)
        else:
            note.unlink(missing_ok=True)
    records = [path for root in roots for path in root.glob("stacks/*/machines/*/machine.json")]
    used = {str(json.loads(path.read_text())["image"]) for path in records}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            if (process / "comm").read_text() == "systemd-nspawn\n":
                mounts = (process / "mountinfo").read_text()
                used |= set(re.findall(rf"lowerdir={re.escape(str(images))}/([^/,]+)/root,", mounts))
    return used
