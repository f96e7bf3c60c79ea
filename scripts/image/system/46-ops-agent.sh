#!/bin/bash
# Google's Ops Agent: logs and metrics. A cluster works without it, so it may be missing, which is then printed.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

install_agent() {
    google_repository ops-agent "google-cloud-ops-agent-$(codename)-all"
    packages google-cloud-ops-agent
    hold google-cloud-ops-agent
}
# In a shell of its own: its failure is not the step's.
if ! (install_agent); then
    say "warning: the Ops Agent could not be installed; the machines send no logs and metrics to Google Cloud"
    rm -f /etc/apt/sources.list.d/hpc-ops-agent.list
    exit 0
fi
# Enabled by its package, and started at the first boot, not here: `packages` starts nothing.
if [[ -n ${DCGM:-} ]]; then
    put /etc/google-cloud-ops-agent/config.yaml <<'END'
metrics:
  receivers:
    dcgm:
      type: dcgm
  service:
    pipelines:
      dcgm:
        receivers: [dcgm]
END
fi
