"""Runs that are killed in the middle of kubectl and helm: the next one goes on, and destroy leaves nothing."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.nebius.kube.project import Project
from tests.nebius.kube.test_helm_releases import make_ready, release, revisions
from tests.waiting import PATIENCE, lives, wait_for

pytestmark = pytest.mark.slow

CONFIG = 'k.core.v1.ConfigMap("config", metadata={"name": "config"}, data={"key": "%s"}, opts=options)'


@pytest.mark.parametrize(("after", "next_run"), [(False, "up"), (True, "changed"), (True, "destroy")])
def test_kill_in_the_middle_of_kubectl(project, kube, namespace, after, next_run):
    project.program(CONFIG % "1")
    project.killed("up", "kubectl", "apply", after=after)
    assert project.state()[1] == [("creating", "config")]
    assert kube.names("configmap", namespace) == (["config"] if after else [])
    if next_run == "destroy":
        assert project.run("destroy").ok
    else:
        assert project.up(CONFIG % ("1" if next_run == "up" else "2")).ok
        assert project.state()[1] == []
        assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == []
    assert project.state() == ({}, [])


def test_kill_in_the_middle_of_a_deletion(project, kube, namespace):
    assert project.up(CONFIG % "1").ok
    project.killed("destroy", "kubectl", "delete", after=True)
    assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == []


def test_kill_in_the_middle_of_a_replacement(project, kube, namespace):
    assert project.up(CONFIG % "1").ok
    project.program(CONFIG % "2")
    project.killed("up", "kubectl", "delete", after=True)
    assert project.up().ok
    assert kube.get("configmap", "config", f"--namespace={namespace}")["data"] == {"key": "2"}
    assert project.state()[1] == []


def _helm_waits(project, kube, namespace, kind="up"):
    """A run whose helm waits for a Pod: the run, and helm's process."""
    process = project.spawn(kind)
    wait_for(lambda: _helms(namespace))
    wait_for(lambda: kube.get("pod", "small-pod", f"--namespace={namespace}"))
    return process


def _helms(namespace):
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"--namespace={namespace}" in arguments and "upgrade" in arguments:
            found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize("next_run", ["up", "destroy"])
def test_kill_while_helm_installs(project, kube, namespace, next_run):
    text = release(namespace, pod=True)
    project.program(text)
    process = _helm_waits(project, kube, namespace)
    process.kill()
    process.join()
    wait_for(lambda: not _helms(namespace))
    assert revisions(kube, namespace) == [(1, "pending-install")]
    if next_run == "up":
        left = kube.get("pod", "small-pod", f"--namespace={namespace}")["metadata"]["uid"]
        thread = threading.Thread(target=make_ready, args=[kube, namespace, left])
        thread.start()
        assert project.up(text).ok
        thread.join()
        assert revisions(kube, namespace) == [(1, "deployed")]
    assert project.run("destroy").ok
    assert revisions(kube, namespace) == kube.names("pods", namespace) == kube.names("configmap", namespace) == []
    assert project.state() == ({}, [])


def test_kill_while_helm_upgrades(project, kube, namespace):
    assert project.up(release(namespace, message="one")).ok
    text = release(namespace, message="two", pod=True)
    project.program(text)
    process = _helm_waits(project, kube, namespace)
    process.kill()
    process.join()
    wait_for(lambda: not _helms(namespace))
    assert revisions(kube, namespace) == [(1, "deployed"), (2, "pending-upgrade")]
    make_ready(kube, namespace)
    result = project.up(release(namespace, message="two"))
    assert result.ok
    assert revisions(kube, namespace)[-1][1] == "deployed"
    assert kube.get("configmap", "small-config", f"--namespace={namespace}")["data"] == {"message": "two"}
    assert project.run("destroy").ok
    assert revisions(kube, namespace) == []


def test_ctrl_c_ends_the_wait_of_helm_and_the_next_run_goes_on(project, kube, namespace):
    text = release(namespace, pod=True)
    project.program(text)
    process = _helm_waits(project, kube, namespace)
    os.kill(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    assert process.exitcode == 1
    wait_for(lambda: not _helms(namespace))
    assert revisions(kube, namespace) == [(1, "failed")]
    assert project.state()[1] == [("creating", "small")]
    make_ready(kube, namespace)
    assert project.up(text).ok
    assert project.run("destroy").ok
    assert project.state() == ({}, [])


def test_a_second_ctrl_c_leaves_no_process(project, kube, namespace):
    project.program(CONFIG % "1")
    released = project.hold("kubectl", "apply", after=True)
    process = project.spawn("up")
    pid = project.root / "hold.pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    os.kill(process.pid, signal.SIGINT)
    # Two that come at once are one.
    time.sleep(0.5)
    assert process.is_alive()
    os.kill(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    wait_for(lambda: not lives(int(pid.read_text())))
    released()
    assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == []


def test_nothing_is_left_in_the_folder_of_private_files(project, namespace):
    project.program(CONFIG % "1")
    project.killed("up", "kubectl", "apply", after=False)
    assert project.up().ok
    assert project.run("destroy").ok
    left = [path for path in Path("/tmp").glob("hpc-kubernetes-*") if any(path.iterdir())]  # noqa: S108
    mine = [
        path for path in left if any(project.kube.access.token in f.read_text() for f in path.iterdir() if f.is_file())
    ]
    assert mine == []


SEVERAL = """
first = k.core.v1.ConfigMap("first", metadata={"name": "first"}, data={"key": "%(value)s"}, opts=options)
k.core.v1.Secret("second", metadata={"name": first.metadata.name.apply(lambda n: n + "-secret")},
    string_data={"key": "%(value)s"}, opts=options)
k.core.v1.ConfigMap("third", data={"key": first.metadata.uid}, opts=options)
"""


@pytest.mark.parametrize("seed", range(2))
def test_kill_at_a_random_moment_orphans_nothing(project, kube, namespace, seed):
    """Whatever is there is known to the state, done or pending, and the next runs make all right."""
    dice = random.Random(seed)  # noqa: S311 - dice, not keys
    before, after = (SEVERAL % {"value": value} + release(namespace, message=value) for value in ("one", "two"))
    if seed % 2:
        assert project.up(before).ok
    started = project.root / "started"
    project.program(f"Path({str(started)!r}).touch()\n{after}")
    process = project.spawn("up")
    wait_for(started.exists)
    time.sleep(dice.random() * 1.2)
    process.kill()
    process.join()
    held, pending = project.state()
    known = {*held, *(name for _, name in pending)}
    there = {*kube.names("configmap", namespace), *kube.names("secrets", namespace)}
    owners = {"first": "first", "first-secret": "second", "small-config": "small"}
    owner = {name: owners.get(name) or ("small" if name.startswith("sh.helm") else "third") for name in there}
    assert {*owner.values()} <= known
    assert project.up().ok
    assert kube.get("configmap", "first", f"--namespace={namespace}")["data"] == {"key": "two"}
    assert kube.get("configmap", "small-config", f"--namespace={namespace}")["data"] == {"message": "two"}
    assert len([name for name in kube.names("configmap", namespace) if name.startswith("third-")]) == 1
    assert project.state()[1] == []
    assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == kube.names("secrets", namespace) == []
    assert project.state() == ({}, [])


def test_while_the_server_is_away_nothing_is_forgotten_and_the_next_runs_go_on(project, kube, namespace, tmp_path):
    other = Project(tmp_path / "other", kube, namespace=namespace)
    project.program(CONFIG % "1")
    project.killed("up", "kubectl", "apply", after=True)
    kube.server.stop()
    try:
        assert not project.run("destroy").ok
        assert "refused" in project.failures()[0]
        assert project.state()[1] == [("creating", "config")]
        assert not other.up(CONFIG % "1").ok
        (message,) = other.failures()
        assert "connection refused" in message or "was refused" in message
    finally:
        kube.server.start()
    assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == []
    assert project.state() == ({}, [])
    assert other.up().ok
    assert kube.names("configmap", namespace) == ["config"]
    assert other.run("destroy").ok
    assert kube.names("configmap", namespace) == []
