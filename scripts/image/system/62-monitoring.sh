#!/bin/bash
# Metrics and alerts: Prometheus, Alertmanager and node_exporter. The node's set-up starts each where a role needs it.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs MONITORING

read -ra names <<<"$MONITORING"
packages "${names[@]}"
# Enabled by their packages, and started at the first boot, not here: `packages` starts nothing.
systemctl disable --quiet "${names[@]}"
