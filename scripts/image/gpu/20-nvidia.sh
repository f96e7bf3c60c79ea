#!/bin/bash
# NVIDIA's driver, built for the image's kernel: there need be no GPU here. DRIVER_FLAVOUR is -open for the open modules,
# which GPUDirect needs, and empty where there are GPUs too old for them.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs DRIVER_BRANCH DRIVER_VERSION DRIVER_PACKAGE CUDA

nvidia_repository
# Its libraries are of one version or of none: apt must not take a single one from elsewhere.
put /etc/apt/preferences.d/hpc-nvidia <<END
Package: libnvidia-* nvidia-compute-utils-* nvidia-dkms-* nvidia-firmware-* nvidia-kernel-* nvidia-modprobe nvidia-persistenced nvidia-utils-* nvidia-driver-*
Pin: version $DRIVER_PACKAGE
Pin-Priority: 1001
END
of=()
for name in "nvidia-dkms-@$DRIVER_FLAVOUR" "nvidia-kernel-source-@$DRIVER_FLAVOUR" nvidia-kernel-common-@ \
    nvidia-compute-utils-@ nvidia-utils-@ libnvidia-compute-@ libnvidia-cfg1-@; do
    of+=("${name//@/$DRIVER_BRANCH}")
done
packages "${of[@]/%/=$DRIVER_PACKAGE}" "nvidia-modprobe=$DRIVER_PACKAGE"
hold "${of[@]}" nvidia-modprobe
toolkit=cuda-toolkit-${CUDA%.*}
toolkit=${toolkit//./-}
packages "$toolkit=$CUDA-1"
hold "$toolkit"

# The package builds for the kernel that runs; the image's may be another.
dkms autoinstall -k "$(kernel)"
built nvidia || die "the driver was not built"
module_for nvidia
version=$(modinfo -k "$(kernel)" -F version nvidia)
[[ $version == "$DRIVER_VERSION" ]] || die "the driver for $(kernel) is $version, not $DRIVER_VERSION"

# No display: nvidia_drm only takes part in the console, and has kept machines from restarting.
put /etc/modprobe.d/hpc-nvidia.conf <<'END'
blacklist nvidia_drm
blacklist nouveau
options nouveau modeset=0
END
put /etc/profile.d/hpc-cuda.sh <<'END'
export PATH="$PATH:/usr/local/cuda/bin"
END
update-initramfs -u -k "$(kernel)"

# An image is for machines with and without GPUs: what needs one is started at a boot that finds one.
put /etc/systemd/system/nvidia-persistenced.service.d/hpc.conf <<'END'
[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose
END
put "$OURS/gpu-boot" 0755 <<'END'
#!/bin/sh
# Starts what GPUs want, on machines that have some.
grep -qs '^0x10de$' "${HPC_PCI:-/sys/bus/pci/devices}"/*/vendor || exit 0
# What containers of jobs are given as /dev/nvidia-uvm, without which CUDA finds no GPU there: nobody else loads it before
# the first job.
nvidia-modprobe -u -c=0 || echo "nvidia_uvm could not be loaded: containers of jobs will find no GPU" >&2
for unit in nvidia-persistenced nvidia-dcgm; do
    systemctl cat "$unit" >/dev/null 2>&1 || continue
    systemctl start "$unit" || echo "$unit did not start: journalctl -u $unit" >&2
done
END
put /etc/systemd/system/hpc-gpu.service <<END
[Unit]
Description=Start what the GPUs want
After=systemd-udev-settle.service
Before=slurmd.service hpc-node.service docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$OURS/gpu-boot

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
off nvidia-persistenced.service
systemctl enable --quiet hpc-gpu.service
