"""Why kubectl did not reach a cluster, from what it printed on standard error."""

import re
import shlex
from collections.abc import Mapping, Sequence

from cluster.platforms.nebius.kubeconfig import credential_command

LOGIN: Mapping[str, str] = {"nebius": "nebius iam whoami"}
"""The command that logs in, by the program of a credential command. It opens a browser where the profile is a federated
one; `nebius profile create` makes a profile. Source: README and .envrc of nebius/nebius-solutions-library,
soperator/installations/example."""
INSTALL_KUBECTL = "https://kubernetes.io/docs/tasks/tools/, on Debian: apt-get install kubernetes-client"
"""Where kubectl comes from."""
INSTALL: Mapping[str, str] = {"nebius": "https://docs.nebius.com/cli/install"}

NO_KIND = "the server doesn't have a resource type"
"""What kubectl prints where the cluster has no such kind, for example one of another generation of Soperator."""

# Texts of client-go (plugin/pkg/client/auth/exec, rest) and of kubectl (pkg/cmd/util/helpers.go), v1.30 to v1.36.
_NOT_FOUND = re.compile(r"exec: executable (?P<program>\S+) not found|exec: \"(?P<other>[^\"]+)\": .*not found")
_FAILED = re.compile(r"exec: executable (?P<program>\S+) failed with exit code (?P<code>\d+)")
_REFUSED = re.compile(
    r"You must be logged in to the server|\(Unauthorized\)|the server has asked for the client to prov"
)
_NO_POD = re.compile(r"\(NotFound\): pods \"(?P<pod>[^\"]+)\" not found")
_NO_CONTAINER = re.compile(r"container not found \(\"(?P<container>[^\"]+)\"\)")
_HELP = re.compile(
    "It looks like you are trying to use a client-go credential plugin|To learn more about this feature"
    "|See https?://|E[0-9]{4} |W[0-9]{4} |I[0-9]{4} |command terminated with exit code"
)
"""Beginnings of lines that do not give the reason."""


def reason(stderr: str, command: Sequence[str]) -> str:
    """One line. `command` is the credential command of the kubeconfig, empty for this program's own."""
    command = credential_command(command)
    program = command[0]
    if _NOT_FOUND.search(stderr):
        where = f" Install it ({INSTALL[program]})." if program in INSTALL else ""
        return f"{program} is not on PATH, which gives kubectl its credential.{where}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if failed := _FAILED.search(stderr):
        reasons = [line for line in lines if not _HELP.match(line) and not _FAILED.search(line)]
        why = f": {reasons[-1]}" if reasons else ""
        ended = f"`{shlex.join(command)}` failed with exit code {failed['code']}{why}"
        return f"the credential command {ended}{_log_in(program)}"
    if _REFUSED.search(stderr):
        return f"the credential of `{shlex.join(command)}` is refused: it may have expired{_log_in(program)}"
    if pod := _NO_POD.search(stderr):
        return f"there is no pod {pod['pod']}"
    if container := _NO_CONTAINER.search(stderr):
        return f"its container {container['container']} does not run"
    reasons = [line for line in lines if not _HELP.match(line)]
    return (reasons or lines or ["kubectl gave no reason"])[-1]


def _log_in(program: str) -> str:
    return f". Log in with: {LOGIN[program]}" if program in LOGIN else ""
