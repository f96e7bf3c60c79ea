#!/bin/bash
# Apptainer, for containers that are one file.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs APPTAINER_URL APPTAINER_VERSION APPTAINER_SHA256

if [[ $(installed apptainer) != "$APPTAINER_VERSION"* ]]; then
    fetch "$APPTAINER_URL" "$APPTAINER_SHA256" "$BUILD/apptainer_${APPTAINER_VERSION}_amd64.deb"
    packages "$BUILD/apptainer_${APPTAINER_VERSION}_amd64.deb"
fi
hold apptainer
# Releases from 24.04 on let no program make namespaces for its user but those that a profile names. Its package may bring
# one; two for the same program stop it from starting.
if [[ -e /proc/sys/kernel/apparmor_restrict_unprivileged_userns ]] &&
    ! grep -rqs --exclude=hpc-apptainer libexec/apptainer /etc/apparmor.d; then
    put /etc/apparmor.d/hpc-apptainer <<'END'
abi <abi/4.0>,
include <tunables/global>
profile hpc-apptainer /usr/libexec/apptainer/bin/starter{,-suid} flags=(unconfined) {
  userns,
}
END
    systemctl reload apparmor.service || die "AppArmor does not take /etc/apparmor.d/hpc-apptainer"
fi
