#!/bin/bash
# Packages that the stack file asks for, `image.packages`.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs IMAGE_PACKAGES

read -ra names <<<"$IMAGE_PACKAGES"
packages "${names[@]}"
