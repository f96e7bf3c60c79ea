#!/bin/bash
# Docker, for the prolog's containers, and NVIDIA's container toolkit, for those of jobs.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs CONTAINER_TOOLKIT

nvidia_repository
# 1.17.7 breaks GPUs in enroot's containers (NVIDIA/nvidia-container-toolkit issue 1093): not even by accident.
put /etc/apt/preferences.d/hpc-container-toolkit <<'END'
Package: nvidia-container-toolkit* libnvidia-container*
Pin: version 1.17.7-1
Pin-Priority: -100
END
names=(nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1)
packages docker.io "${names[@]/%/=$CONTAINER_TOOLKIT}"
hold docker.io "${names[@]}"
nvidia-ctk runtime configure --runtime=docker

# Docker's socket stays root's (0660, group docker, which has no members): whoever may write to it is root on the machine,
# by mounting / into a container. Prologs run as root; users have enroot and apptainer, which need no such door.
# Images of several GB go to the local SSDs, where a machine has some: hpc-localssd says so at each boot.
put /etc/systemd/system/docker.service.d/hpc.conf <<'END'
[Unit]
After=hpc-localssd.service
[Service]
EnvironmentFile=-/run/hpc/docker.env
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $HPC_DOCKER
END
systemctl daemon-reload
systemctl enable --quiet docker.socket docker.service
