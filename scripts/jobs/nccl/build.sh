# shellcheck shell=bash
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
