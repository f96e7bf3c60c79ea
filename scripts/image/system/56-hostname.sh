#!/bin/bash
# Each machine's name in /etc/hostname at every boot: enroot reads it there, and a clone would have the builder's.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

put /etc/systemd/system/hpc-hostname.service <<'END'
[Unit]
Description=The machine's name in /etc/hostname
Wants=network-online.target
After=network-online.target google-guest-agent.service
Before=slurmd.service hpc-node.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'name=$(uname -n) && echo "$${name%%%%.*}" >/etc/hostname'

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --quiet hpc-hostname.service
