# shellcheck shell=bash
# PyTorch of Debian and Ubuntu is built without libuv.
export USE_LIBUV=0
