# shellcheck shell=bash disable=SC2034,SC1091
# What the steps of an image share. Each step begins with it: `. "$HPC_LIBRARY"`.
# A step may be killed at any point and run again: everything here changes only what differs.
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 GIT_TERMINAL_PROMPT=0
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

REBOOT=194            # exit code of a step that needs the machine restarted before it goes on
BUILD=/var/tmp/hpc    # where sources are built; the clean-up removes it
OURS=/usr/local/lib/hpc/image
APT=${HPC_APT:-/etc/apt}

say() { printf '%s\n' "$*"; }

# die TEXT: end the step; the text is the last thing that its log says.
die() {
    say "error: $*" >&2
    exit 1
}

# needs NAME...: parameters that the step can't do without.
needs() {
    local name
    for name; do
        [[ -n ${!name:-} ]] || die "the parameter $name is empty: the program was made for another step's needs"
    done
}

# put PATH [MODE] <TEXT: a file with this text, replaced as a whole; returns 0 also when it was so already.
put() {
    local path=$1 mode=${2:-0644} part
    mkdir -p "$(dirname "$path")"
    part=$(mktemp "$(dirname "$path")/.hpc.XXXXXX")
    cat >"$part"
    chmod "$mode" "$part"
    if [[ -f $path && ! -L $path ]] && cmp -s "$part" "$path" && [[ $(stat -c %a "$path") == "${mode#0}" ]]; then
        rm -f "$part"
        return 0
    fi
    mv -f "$part" "$path"
    say "wrote $path"
}

# Every call waits for whoever else holds apt's lock (cloud-init, a first boot), and tries a mirror again.
apt_get() {
    apt-get -y -q -o DPkg::Lock::Timeout=900 -o Acquire::Retries=5 -o APT::Get::Assume-Yes=true \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}

# refresh: fetch the lists of packages, once for each set of sources and boot.
refresh() {
    local mark=/run/hpc-apt-lists wanted
    wanted=$(find /etc/apt/sources.list /etc/apt/sources.list.d -type f -exec cat {} + 2>/dev/null | sha256sum || true)
    [[ -f $mark && $(<"$mark") == "$wanted" ]] && return 0
    apt_get update
    printf '%s' "$wanted" >"$mark"
}

# packages NAME[=VERSION]...: have them installed, and nothing removed for it.
# Nothing that they bring is started: a daemon of an image has neither its settings nor its key, and one that ran on the
# builder would leave its state to every machine.
packages() {
    quietly install --no-remove --no-install-recommends --allow-downgrades --allow-change-held-packages "$@" ||
        die "apt-get could not install $*"
}

# upgrade: every package that is not held as new as the sources have it; none is removed for it.
upgrade() { quietly upgrade --with-new-pkgs || die "apt-get could not upgrade the packages of the image"; }

# quietly ARGUMENTS: apt-get, after whatever a killed run has left half done, and without starting a daemon.
quietly() {
    local status=0
    refresh || return
    put /usr/sbin/policy-rc.d 0755 <<<$'#!/bin/sh\nexit 101'
    dpkg --force-confdef --force-confold --configure -a || status=$?
    apt_get "$@" || status=$?
    rm -f /usr/sbin/policy-rc.d
    return "$status"
}

# hold NAME...: keep packages at the version that they have.
hold() {
    apt-mark hold "$@" >/dev/null
    say "held $*"
}

# installed NAME: the version of a package, empty if it is not installed.
installed() {
    dpkg-query --show --showformat='${db:Status-Status} ${Version}\n' "$1" 2>/dev/null | sed -n 's/^installed //p'
}

# off UNIT...: units that systemd starts neither now nor at a boot by itself. Where the machine's set-up has started what
# its role requires, a step that runs again leaves it alone.
off() {
    local unit
    ! set_up || return 0
    for unit; do
        if systemctl cat "$unit" >/dev/null 2>&1; then
            systemctl disable --now --quiet "$unit" || true
        fi
    done
}

# set_up: whether this machine is part of a cluster already.
set_up() { [[ -d /etc/hpc/started ]]; }

# The set-up of each machine starts what its role requires, when it has settings and key.
slurm_daemons_off() {
    off slurmctld.service slurmd.service slurmdbd.service slurmrestd.service mariadb.service munge.service
    # Every package makes a key: machines of one image would all have the same, and none has the cluster's.
    set_up || rm -f /etc/munge/munge.key
    local folder
    for folder in /var/spool/slurmctld /var/log/slurm; do
        install -d -o slurm -g slurm -m 0755 "$folder"
    done
    install -d -m 0755 /etc/slurm /var/spool/slurmd
}

# repository NAME KEY_URL FINGERPRINT LINE: an apt repository, trusted by one key only, whose fingerprint is known here.
# In LINE, @key@ stands for the file of that key.
repository() {
    local name=$1 url=$2 fingerprint=$3 line=$4 key="$APT/keyrings/hpc-$1.gpg" home there=yes
    home=$(mktemp -d)
    if curl -fsSL --retry 5 --max-time 120 -o "$home/key" "$url"; then
        # Public keys need no agent, which gpg would leave running.
        gpg --homedir "$home" --batch --no-autostart --quiet --import "$home/key" 2>/dev/null || true
        # The file may hold other keys too: only this one is kept.
        gpg --homedir "$home" --batch --no-autostart --export "$fingerprint" >"$home/only" || true
        if [[ -s $home/only ]]; then put "$key" 0644 <"$home/only"; else there=no; fi
    else
        there=
    fi
    rm -rf "$home"
    [[ -n $there ]] || die "the key of the repository $name could not be had from $url"
    [[ $there == yes ]] || die "the key at $url is not $fingerprint: who has changed it, and why, must be known first"
    put "$APT/sources.list.d/hpc-$name.list" <<<"${line//@key@/$key}"
}

# The keys that the vendors' repositories are signed with: a key that is none of these is refused.
NVIDIA_FINGERPRINT=EB693B3035CD5710E231E123A4B469963BF863CC # cudatools <cudatools@nvidia.com>
GOOGLE_FINGERPRINT=35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3 # Artifact Registry Repository Signer
GOOGLE_KEY=https://packages.cloud.google.com/apt/doc/apt-key.gpg
REGISTRY_KEY=https://us-apt.pkg.dev/doc/repo-signing-key.gpg

nvidia_repository() {
    local system
    system=$(. /etc/os-release && printf '%s%s' "$ID" "${VERSION_ID//./}")
    repository nvidia "https://developer.download.nvidia.com/compute/cuda/repos/$system/x86_64/3bf863cc.pub" \
        "$NVIDIA_FINGERPRINT" "deb [signed-by=@key@] https://developer.download.nvidia.com/compute/cuda/repos/$system/x86_64/ /"
}

# google_repository NAME SUITE
google_repository() {
    repository "$1" "$GOOGLE_KEY" "$GOOGLE_FINGERPRINT" "deb [signed-by=@key@] https://packages.cloud.google.com/apt $2 main"
}

# archive NAME DATE: Ubuntu's archive as it was then, such as 20261101T000000Z, from Ubuntu's snapshot service: the same
# packages at every bake, and kernels that the archive of today has dropped. Signed with Ubuntu's own key, as ever.
archive() {
    local name=$1 date=$2 options='signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg' pocket
    [[ $date =~ ^20[0-9]{6}T[0-9]{6}Z$ ]] || die "$date is no date of Ubuntu's archive, such as 20261101T000000Z"
    [[ $date < $(date -u +%Y%m%dT%H%M%SZ) ]] ||
        die "the archive of $date is still to come: set image.snapshot to a day that was"
    for pocket in "" -updates -security; do
        say "deb [$options] https://snapshot.ubuntu.com/ubuntu/$date $(codename)$pocket main restricted universe multiverse"
    done | put "$APT/sources.list.d/hpc-$name.list"
}

# codename: jammy, noble
codename() { (. /etc/os-release && printf '%s' "$VERSION_CODENAME"); }

# fetch URL SHA256 PATH: a file of exactly that content.
fetch() {
    local url=$1 sha256=$2 path=$3
    if [[ -f $path ]] && sha256sum --check --status <<<"$sha256  $path"; then
        return 0
    fi
    mkdir -p "$(dirname "$path")"
    curl -fsSL --retry 5 --max-time 900 -o "$path.part" "$url" || die "$url could not be fetched"
    sha256sum --check --status <<<"$sha256  $path.part" ||
        die "what stands at $url has SHA-256 $(sha256sum <"$path.part" | cut -c1-64), not $sha256"
    mv -f "$path.part" "$path"
}

# checkout URL COMMIT FOLDER: a work tree of exactly that commit, with its submodules, and nothing else in it.
# A commit's hash is of its whole content, so git itself refuses anything else.
checkout() {
    local url=$1 commit=$2 folder=$3
    [[ $commit =~ ^[0-9a-f]{40}$ ]] || die "$commit is no commit: a branch or a tag can change"
    if [[ ! -d $folder/.git ]]; then
        rm -rf "$folder"
        git init --quiet "$folder"
    fi
    if ! git -C "$folder" cat-file -e "$commit^{commit}" 2>/dev/null; then
        git -C "$folder" fetch --quiet --depth 1 "$url" "$commit" || die "commit $commit could not be had from $url"
    fi
    git -C "$folder" checkout --quiet --force "$commit"
    git -C "$folder" clean --quiet -dffx
    [[ $(git -C "$folder" rev-parse HEAD) == "$commit" ]] || die "$folder is not at $commit"
    if [[ -f $folder/.gitmodules ]]; then
        # git's own protocol is not open on every network; the same host answers HTTPS.
        git -C "$folder" -c url.https://git.musl-libc.org/git/.insteadOf=git://git.musl-libc.org/ \
            submodule --quiet update --init --recursive --force || die "the submodules of $url could not be had"
        git -C "$folder" submodule --quiet foreach --recursive 'git clean --quiet -dffx'
    fi
}

# kernel: the kernel that modules are built for, which need not be the one that runs.
kernel() { printf '%s' "${KERNEL:-$(uname -r)}"; }

# module_for NAME: a module must be there for the image's kernel, and for no other build of it.
module_for() {
    modinfo -k "$(kernel)" -F vermagic "$1" 2>/dev/null | grep -q "^$(kernel) " ||
        die "the kernel module $1 is not there for $(kernel): $(modinfo -k "$(kernel)" "$1" 2>&1 | head -n 1)"
}

# built NAME: DKMS has installed the modules of this package for the image's kernel. Its line is `NAME/VERSION, KERNEL, ARCH:
# installed`, up to DKMS 2.8.1 `NAME, VERSION, ...`. Where a file is lost since, it still says `installed`, and that it
# differs.
built() {
    local status
    status=$(dkms status -k "$(kernel)")
    grep "^$1[/,].*: installed" <<<"$status" | grep -qvi diff || {
        say "DKMS has not installed $1 for $(kernel): ${status:-it has no modules for it}"
        return 1
    }
}

# Lustre speaks over the system network: with nine interfaces it would otherwise take the first that comes up.
lustre_network() {
    put "$OURS/lnet" 0755 <<'END'
#!/bin/sh
# Names the interface of the default route to Lustre, before its modules are loaded.
set -eu
interface=$(ip -4 -o route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
[ -n "$interface" ] || { echo "no interface has a default route" >&2; exit 1; }
mkdir -p /run/modprobe.d
echo "options lnet networks=tcp($interface)" >/run/modprobe.d/hpc-lnet.conf
modprobe lustre
END
    put /etc/systemd/system/hpc-lnet.service <<END
[Unit]
Description=Lustre on the system network
Wants=network-online.target
After=network-online.target
Before=remote-fs-pre.target hpc-node.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$OURS/lnet

[Install]
WantedBy=multi-user.target remote-fs-pre.target
END
    systemctl daemon-reload
    systemctl enable --quiet hpc-lnet.service
}

# has_gpu: whether this very machine has an NVIDIA GPU. The builder of an image need not.
has_gpu() {
    local vendor
    for vendor in "${HPC_PCI:-/sys/bus/pci/devices}"/*/vendor; do
        [[ -r $vendor && $(<"$vendor") == 0x10de ]] && return 0
    done
    return 1
}
