#!/bin/bash
# Slurm as the distribution has it, with what it requires beside it, and the tools that a cluster of this size is used with.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

# Asked by mailutils' mail system; nobody is there to answer.
debconf-set-selections <<'END'
postfix postfix/main_mailer_type select Local only
postfix postfix/mailname string localdomain
END
packages slurm-wlm slurm-wlm-doc slurm-wlm-mysql-plugin slurmdbd munge libmunge-dev libpmix2t64 mariadb-server \
    mariadb-client libmariadb-dev-compat mailutils keychain
# What Python versions and programs of users' own are built with.
packages build-essential libssl-dev zlib1g-dev libbz2-dev libreadline-dev libsqlite3-dev curl git libncursesw5-dev \
    xz-utils tk-dev libxml2-dev libxmlsec1-dev libffi-dev liblzma-dev
# Machines of one cluster must run one release.
mapfile -t names < <(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' 'slurm*' | sed -n 's/^installed //p')
hold "${names[@]}"
[[ $(id -u slurm) == 64030 ]] || die "slurm must have uid 64030, as in the distribution's packages, and has $(id slurm)"
slurm_daemons_off

# The network's firewall guards; this one would stop srun, whose ports are any, and NFS.
if command -v ufw >/dev/null && ufw status | grep -q 'Status: active'; then
    ufw disable
fi
