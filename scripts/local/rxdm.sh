#!/bin/bash
# Stands for the rxdm prolog of A3 Mega nodes where there are no such nodes: it does the same in outline, without
# containers, GPUs and the cloud's metadata. Its check of the operating system is that of the versions of 2024-08 to
# 2025-02, for Debian 12 only, so that a rehearsal patches it as it would patch those.
set -e

# One node needs no path to others.
if [[ ${SLURM_JOB_NUM_NODES} -eq 1 ]]; then
	exit 0
fi

profile=/var/lib/tcpxo/lib64/nccl-env-profile.sh
manager=/run/hpc-rxdm-${SLURM_JOB_ID}.pid

stop_managers() {
	for kept in /run/hpc-rxdm-*.pid; do
		[[ -e $kept ]] || continue
		# The number may long be another process's.
		if grep -qs stands-for-rxdm "/proc/$(<"$kept")/cmdline"; then
			kill "$(<"$kept")"
		fi
		rm -f "$kept"
	done
}

if [[ ${SLURM_SCRIPT_CONTEXT} == "prolog_slurmd" ]]; then
	stop_managers

	# What the plugin's installer writes: it takes network interfaces to be called eth0 to eth8.
	mkdir -p "${profile%/*}"
	cat >"$profile" <<-'EOT'
		export NCCL_FASTRAK_CTRL_DEV=eth0
		export NCCL_FASTRAK_IFNAME=eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8
		export NCCL_SOCKET_IFNAME=eth0
	EOT

	if (grep -q "ID=debian" /etc/os-release && lsb_release -rs | grep -q "12"); then
		cat >>"$profile" <<-'EOT'
			export NCCL_FASTRAK_CTRL_DEV=enp0s12
			export NCCL_FASTRAK_IFNAME=enp6s0,enp7s0,enp13s0,enp14s0,enp134s0,enp135s0,enp141s0,enp142s0
			export NCCL_SOCKET_IFNAME=enp0s12
			export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices
		EOT
	fi

	# In a session of its own: slurmd ends what is left of a prolog. The inner shell expands what is quoted here.
	# shellcheck disable=SC2016
	setsid --fork bash -c 'echo $$ >"$1"; exec -a stands-for-rxdm sleep infinity' manager "$manager"
	for _ in {1..50}; do
		[[ -s $manager ]] && break
		sleep 0.1
	done
	echo "stand-in for rxdm: started for job ${SLURM_JOB_ID}, process $(<"$manager")"
elif [[ ${SLURM_SCRIPT_CONTEXT} == "epilog_slurmd" ]]; then
	stop_managers
fi
