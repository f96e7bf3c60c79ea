# shellcheck shell=bash
# The benchmarks' code, at the pinned commit, in $DATA/training. REPOSITORY and COMMIT are given.

# A clone that was interrupted is completed: git fetches again, and checks out what differs. Files of the benchmark that
# somebody changed are put back; other files stay.
clone() {
    need git "install the package git on the nodes"
    # The data folder is another file system than its parent.
    export GIT_DISCOVERY_ACROSS_FILESYSTEM=1
    local tree=$DATA/training
    [[ -d $tree/.git ]] || git init --quiet "$tree"
    # Locks of a git that was killed; jobs of this name run one at a time.
    rm -f "$tree/.git/index.lock" "$tree/.git/shallow.lock"
    git -C "$tree" remote remove origin 2>/dev/null || true
    git -C "$tree" remote add origin "$REPOSITORY"
    git -C "$tree" fetch --quiet --depth 1 origin "$COMMIT"
    git -C "$tree" checkout --quiet --force --detach "$COMMIT"
}
