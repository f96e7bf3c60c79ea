# shellcheck shell=bash
# shellcheck source=begin.sh disable=SC2153
# Copies SOURCE to $DATA/$TARGET: from an rclone remote, or from s3://BUCKET/PATH by the AWS CLI. Both leave out files
# that are there already, so a job that was interrupted goes on where it was. Keys come from your own configuration
# (~/.config/rclone/rclone.conf, ~/.aws) or from the environment (RCLONE_*, AWS_*).
copy() {
    # The name of an archive: of REMOTE:DIR/X.tar and of REMOTE:X.tar.
    local name=${SOURCE##*[:/]}
    mkdir -p "$DATA/$TARGET"
    if [[ $SOURCE == s3://* ]]; then
        need aws "install the AWS CLI on the nodes, or name an rclone remote as --source"
        local options=(--no-progress)
        [[ -z $ENDPOINT ]] || options+=(--endpoint-url "$ENDPOINT")
        [[ -e ~/.aws/credentials || -n ${AWS_ACCESS_KEY_ID:-} ]] || options+=(--no-sign-request)
        if [[ $SOURCE == *.tar ]]; then
            aws s3 cp "${options[@]}" "$SOURCE" "$DATA/$TARGET/$name"
        else
            aws s3 sync "${options[@]}" "$SOURCE" "$DATA/$TARGET"
        fi
    else
        need rclone "install the package rclone on the nodes"
        if [[ $SOURCE == recipe:* && -n $ENDPOINT ]]; then
            # A remote by its variables: rclone 1.53 of Ubuntu 22.04 takes no connection string.
            export RCLONE_CONFIG_RECIPE_TYPE=s3 RCLONE_CONFIG_RECIPE_PROVIDER=Other RCLONE_CONFIG_RECIPE_ENDPOINT=$ENDPOINT
        fi
        # Figures of the recipe's own job. A copy of one file takes its folder as the target.
        rclone copy "$SOURCE" "$DATA/$TARGET" --links --transfers 64 --checkers 16 --retries 10 --low-level-retries 20 \
            --stats 30s --stats-one-line --stats-log-level NOTICE
    fi
    local archive=$DATA/$TARGET/$name
    if [[ $SOURCE == *.tar ]]; then
        tar --blocking-factor=8192 -xf "$archive" -C "$DATA/$TARGET"
        rm "$archive"
    fi
}
once "copy-$NAME" "$SOURCE" copy
