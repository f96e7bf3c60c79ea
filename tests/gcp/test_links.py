"""What people copy from the outputs: it leads where they want to go, in any cluster, and holds no key."""

import shlex
from urllib.parse import parse_qs, unquote, urlsplit

from components.gcp.deploy import console_links, ssh_commands
from tests.gcp.test_access import PUBLIC, config

USERS = [{"name": "alice", "uid": 2001, "account": "research"}]


def test_without_public_addresses_commands_use_identity_aware_proxy() -> None:
    commands = ssh_commands(config(users=USERS))
    assert list(commands) == ["small-controller", "small-login-0", "admin_key"]
    words = shlex.split(commands["small-login-0"])
    assert (words[:2], words[-1]) == (["ssh", "-o"], "alice@small-login-0")
    assert words[2].startswith("ProxyCommand=gcloud compute start-iap-tunnel small-login-0 22 --project my-project ")
    assert "--listen-on-stdin" in words[2]
    assert shlex.split(commands["small-controller"])[-3:] == ["-i", "small.key", "root@small-controller"]


def test_a_public_login_machine_is_the_jump_host_in_commands() -> None:
    commands = ssh_commands(config(**PUBLIC), {"small-login-0": "198.51.100.1", "small-login-1": "198.51.100.2"})
    assert commands["small-login-1"] == "ssh USER@198.51.100.2"
    assert shlex.split(commands["small-controller"]) == [
        "ssh", "-o", "ProxyCommand=ssh -i small.key -W %h:%p root@198.51.100.1", "-i", "small.key",
        "root@small-controller",
    ]  # fmt: skip
    assert "PRIVATE KEY" not in "".join(commands.values())


def test_the_command_for_a_controller_that_is_the_login_machine_names_a_user() -> None:
    commands = ssh_commands(config(login={"on": "controller"}))
    assert commands["small-controller"].endswith(" USER@small-controller")


def test_console_links_are_of_the_stacks_project_and_resources() -> None:
    storage = {"lustre": {"kind": "managed"}, "buckets": [{"name": "my-data", "mount": "/gcs"}]}
    pages = console_links(config(storage=storage))
    parts = {what: urlsplit(url) for what, url in pages.items()}
    assert all(part.netloc == "console.cloud.google.com" for part in parts.values())
    assert all(parse_qs(part.query)["project"] == ["my-project"] for part in parts.values())
    assert parts["bucket my-data"].path == "/storage/browser/my-data"
    assert "us-central1-a/instances/small-controller" in parts["controller"].path
    assert unquote(parts["logs"].path).endswith('=~"^small-"')
    assert "lustre" in pages
    assert not {"lustre", "filestore"} & set(console_links(config()))
