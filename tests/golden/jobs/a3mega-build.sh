#!/bin/bash
# Imports nvidia/pytorch:24.04-py3 and builds nccl-tests 2.13.11 in it.
#SBATCH --job-name=hpc-nccl-build
#SBATCH --output=nccl/logs/%j-build.log
#SBATCH --dependency=singleton
#SBATCH --partition=a3mega
#SBATCH --nodes=1
#SBATCH --gpus-per-node=h100:8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=60

set -euo pipefail

folder="$HOME/nccl"
image="$HOME/nccl/nvidia+pytorch+24.04-py3.sqsh"
from='docker://nvcr.io#nvidia/pytorch:24.04-py3'
tests="$HOME/nccl/nccl-tests-2.13.11-24.04-py3"
url=https://github.com/NVIDIA/nccl-tests
commit=8dfeab9eb9bdfdf13503e71e1f33e7f8a208b540
programs=10

. /opt/apps/hpc/env.sh

# Containers by enroot and pyxis: $image is the image's file, $folder is mounted.
#
# What srun needs before a command, so that it runs in the container with the job's environment. env.sh is read inside
# again: there, LD_LIBRARY_PATH is the image's own, which the plugin's libraries come before.
contained=(
    --container-image="$image"
    --container-mounts="$HPC_CONTAINER_MOUNTS,$folder:$folder"
    --container-env="$HPC_CONTAINER_ENV"
    bash -c '. /opt/apps/hpc/env.sh && exec "$@"' bash
)

# Imports a container image with enroot: $image is the file, $from where it comes from.
import_image() {
    # enroot keeps its runtime files in XDG_RUNTIME_DIR, and a job has no session of systemd that would make one.
    (
        if [[ -z ${XDG_RUNTIME_DIR:-} || ! -w ${XDG_RUNTIME_DIR:-} ]]; then
            XDG_RUNTIME_DIR=$(mktemp -d)
            export XDG_RUNTIME_DIR
            trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
        fi
        enroot import --output "$image.part" "$from"
    )
}

# Imports the container image and builds nccl-tests in it; what is done already stays. $folder is on the shared file
# system, $tests is where the programs go, $url and $commit say which nccl-tests, $programs how many there are.

# Lines that begin so are the progress that `./hpc nccl` shows.
say() { echo "==> $*"; }
mkdir -p "$folder"

if [[ -s $image ]]; then
    say "image: $image is there"
else
    say "image: importing $from (about 10 minutes, 18 GB)"
    rm -rf "$image.part"
    import_image
    mv "$image.part" "$image"
    say "image: $image, $(du -h --apparent-size "$image" | cut -f1)"
fi

say "nccl-tests: building $commit in the container (about 4 minutes)"
rm -rf "$tests.part"
mkdir "$tests.part"
# shellcheck disable=SC2016 # expanded in the container
srun --ntasks=1 --nodes=1 --cpu-bind=none "${contained[@]}" bash -euo pipefail -c '
    cd "$1"
    git init --quiet .
    git fetch --quiet --depth 1 "$2" "$3"
    git checkout --quiet "$3"
    [[ $(git rev-parse HEAD) == "$3" ]]
    make --jobs="$(nproc)" MPI=1 CC=mpicc CXX=mpicxx
' bash "$tests.part" "$url" "$commit"
found=("$tests.part"/build/*_perf)
if ((${#found[@]} != programs)); then
    echo "the build ended with ${#found[@]} programs, not $programs: ${found[*]##*/}" >&2
    exit 1
fi
rm -rf "$tests"
mv "$tests.part" "$tests"
say "nccl-tests: $programs programs in $tests/build"
