#!/bin/bash
# Whether all is there that the steps before were for; it prints each line that is not true, then the step fails.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

GVE=${HPC_GVE:-/sys/module/gve} FIRMWARE=${HPC_FIRMWARE:-/lib/firmware}
PLUGINS=${HPC_DCGM_PLUGINS:-/usr/libexec/datacenter-gpu-manager-4/plugins}
wrong=0
# check WHAT COMMAND...: the command must succeed.
check() {
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        say "ok: $what"
    else
        say "wrong: $what: $(tail -n 3 <<<"$said" | tr '\n' ' ')"
        wrong=$((wrong + 1))
    fi
}
one_kernel() { [[ $(echo /boot/vmlinuz-*) == "/boot/vmlinuz-$KERNEL" ]]; }
version() { [[ "$("${@:2}" 2>&1)" == *"$1"* ]]; }
has() { type "$@" >/dev/null; }
holds() { [[ -n $(apt-mark showhold) ]]; }
linked() { [[ -f $1 ]] && ! ldd "$1" | grep 'not found'; }
network_runs_by() { [[ $(<"$GVE/version") == "$1"* ]]; }
loads() {
    if [[ $(uname -r) == "$(kernel)" ]]; then modprobe "$1"; else modprobe --dry-run --set-version="$(kernel)" "$1"; fi
}

check "packages are held" holds
check "python3 is 3.8 or newer" python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'
check "python3 makes environments" python3 -c 'import ensurepip, venv'
check "tmux, nano and git" has tmux nano git
check "the slurm user has uid 64030" version 64030 id -u slurm
check "slurmd" slurmd -V
check "slurmctld" slurmctld -V
check "slurmdbd" slurmdbd -V
check "munged" munged --version
check "NFS" command -v mount.nfs
if [[ -n ${KERNEL:-} ]]; then
    check "one kernel, $KERNEL" one_kernel
    check "the network settings" test -s /etc/netplan/90-hpc.yaml
fi
[[ -z ${SLURM_VERSION:-} ]] || check "Slurm $SLURM_VERSION" version "slurm $SLURM_VERSION" slurmd -V
[[ -z ${GVE_VERSION:-} ]] || check "gVNIC $GVE_VERSION for $(kernel)" version "$GVE_VERSION" modinfo -k "$(kernel)" -F version gve
# Where the network of this very machine is a gVNIC, as of a builder and of the machine that first boots the image.
if [[ -n ${GVE_VERSION:-} && -e $GVE && $(uname -r) == "$(kernel)" ]]; then
    check "this machine's own network runs by gVNIC $GVE_VERSION" network_runs_by "$GVE_VERSION"
fi
[[ -z ${DRIVER_PACKAGE:-} ]] ||
    check "driver $DRIVER_VERSION for $(kernel)" version "$DRIVER_VERSION" modinfo -k "$(kernel)" -F version nvidia
[[ -z ${DRIVER_PACKAGE:-} ]] || check "the driver is built" built nvidia
# Without its own firmware the open driver finds no GPU. The build does not miss it, and no other part does.
[[ ${DRIVER_FLAVOUR:-} != -open ]] || check "GSP firmware of $DRIVER_VERSION" compgen -G "$FIRMWARE/nvidia/$DRIVER_VERSION/gsp_*.bin"
[[ -z ${DRIVER_PACKAGE:-} ]] || check "nvidia_uvm for $(kernel)" modinfo -k "$(kernel)" nvidia_uvm
[[ -z ${DRIVER_PACKAGE:-} ]] || check "nvidia-modprobe" command -v nvidia-modprobe
[[ -z ${CONTAINER_TOOLKIT:-} ]] || check "container toolkit" version "${CONTAINER_TOOLKIT%-*}" nvidia-ctk --version
[[ -z ${CONTAINER_TOOLKIT:-} ]] || check "Docker" dockerd --validate
[[ -z ${DCGM:-} ]] || check "DCGM" dcgmi --version
# dcgmi diag takes its plugins from the folder of the CUDA that the driver reports.
[[ -z ${DCGM:-} ]] || check "DCGM's plugins for CUDA $DRIVER_CUDA" compgen -G "$PLUGINS/cuda$DRIVER_CUDA/lib*.so*"
[[ -z ${TCPXO:-} ]] || check "dmabuf's import-helper is built" built dmabuf-import-helper
[[ -z ${TCPXO:-} ]] || check "dmabuf's import-helper can be loaded" loads import-helper
[[ -z ${TCPXO:-} ]] || check "the rule for aperture devices" test -s /etc/udev/rules.d/00-hpc-aperture.rules
[[ -z ${GIB:-} ]] || check "gIB $GIB" version "$GIB" dpkg-query --show nccl-gib
[[ -z ${GIB:-} ]] || check "NCCL's settings of gIB" test -s /usr/local/gib/scripts/set_nccl_env.sh
[[ -z ${GIB:-} ]] || check "the driver of RDMA adapters can be loaded" loads mlx5_ib
[[ -z ${ENROOT_VERSION:-} ]] || check "enroot $ENROOT_VERSION" version "$ENROOT_VERSION" env HOME=/root enroot version
[[ -z ${PYXIS_VERSION:-} ]] || check "pyxis" linked /usr/local/lib/slurm/spank_pyxis.so
[[ -z ${SLURM_VERSION:-} ]] || check "Open MPI" version "(Open MPI)" mpirun --version
[[ -z ${SLURM_VERSION:-} ]] || check "rclone" version "rclone v" rclone version
[[ -z ${APPTAINER_VERSION:-} ]] || check "apptainer $APPTAINER_VERSION" version "$APPTAINER_VERSION" apptainer --version
[[ ${LUSTRE:-none} == none ]] || check "lustre.ko for $(kernel)" loads lustre
[[ ${LUSTRE:-none} == none ]] || check "Lustre's tools" lctl --version
[[ -z ${GCSFUSE:-} ]] || check "GCS FUSE $GCSFUSE" version "$GCSFUSE" gcsfuse --version
[[ $wrong == 0 ]] || die "$wrong of the checks above failed: this image would not work"
