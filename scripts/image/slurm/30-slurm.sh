#!/bin/bash
# Slurm, as the packages that SchedMD's own packaging makes of its source: the distribution's is years older.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs SLURM_URL SLURM_VERSION SLURM_SHA256

# As in Debian's and Ubuntu's packages, and on every machine alike: files on shared disks carry the number.
getent group slurm >/dev/null || groupadd --system --gid 64030 slurm
getent passwd slurm >/dev/null ||
    useradd --system --uid 64030 --gid slurm --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurm
[[ $(id -u slurm):$(id -g slurm) == 64030:64030 ]] || die "slurm must have uid and gid 64030, and has $(id slurm)"

names=(slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmctld slurm-smd-slurmd slurm-smd-slurmdbd \
    slurm-smd-slurmrestd slurm-smd-libpmi0 slurm-smd-libpmi2-0 slurm-smd-libpam-slurm-adopt)
version=$SLURM_VERSION-1
missing=0
for name in "${names[@]}"; do
    [[ $(installed "$name") == "$version" ]] || missing=1
done
if [[ $missing == 1 ]]; then
    fetch "$SLURM_URL" "$SLURM_SHA256" "$BUILD/${SLURM_URL##*/}"
    rm -rf "$BUILD/slurm"
    mkdir "$BUILD/slurm"
    tar --extract --file "$BUILD/${SLURM_URL##*/}" --directory "$BUILD/slurm" --strip-components 1
    cd "$BUILD/slurm"
    [[ $(sed -n '1s/^slurm-smd (\(.*\)).*/\1/p' debian/changelog) == "$version" ]] ||
        die "$SLURM_URL is $(head -n 1 debian/changelog), not $version"
    refresh
    mk-build-deps --install --remove \
        --tool 'apt-get -y -o DPkg::Lock::Timeout=900 --no-install-recommends' debian/control
    DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" dpkg-buildpackage --build=binary --no-sign
    architecture=$(dpkg --print-architecture)
    files=()
    for name in "${names[@]}"; do
        files+=("$BUILD/${name}_${version}_$architecture.deb")
    done
    packages munge "${files[@]}"
    cd /
fi
hold "${names[@]}"
# The default of `srun --mpi`: left out without a word where the build found no libpmix.
compgen -G '/usr/lib/*/slurm/mpi_pmix*.so' >/dev/null || die "Slurm was built without PMIx"
compgen -G '/usr/lib/*/slurm/auth_jwt.so' >/dev/null || die "Slurm was built without JSON Web Tokens"
compgen -G '/usr/lib/*/slurm/job_submit_lua.so' >/dev/null || die "Slurm was built without Lua"

# Accounting, and mail about jobs that stays on the cluster; which machine runs them, its set-up says.
debconf-set-selections <<'END'
postfix postfix/main_mailer_type select Local only
postfix postfix/mailname string localdomain
END
packages mariadb-server mailutils libpmix2
slurm_daemons_off
