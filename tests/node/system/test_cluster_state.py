"""Machines wait for the config version, but not for a controller whose set-up has failed."""

import threading
import time

import pytest
from system import cluster_state
from system.host import SetupError


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cluster state in a folder of the test, on the controller `c`."""
    (tmp_path / "nodes").mkdir()
    for name, path in (("FOLDER", ""), ("CONFIG", "cluster.json"), ("REPORTS", "nodes"), ("HOST_KEY", "key")):
        monkeypatch.setattr(cluster_state, name, tmp_path / path)
    monkeypatch.setattr(cluster_state, "GRACE", 0.5)
    monkeypatch.setattr(cluster_state.host, "require_root_only", lambda _: None)
    monkeypatch.setattr(cluster_state, "write", lambda path, text, **_: path.write_text(text))
    monkeypatch.setattr(cluster_state, "folder", lambda path: path.mkdir(exist_ok=True))
    monkeypatch.setattr(cluster_state, "boot_id", lambda: "b")
    monkeypatch.setattr(cluster_state.socket, "gethostname", lambda: "c")
    return tmp_path


def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_a_config_version_ends_the_wait(place):
    # Atomically, as the controller writes it.
    (place / "new").write_text('{"digest": "d"}')
    later(0.2, lambda: (place / "new").replace(place / "cluster.json"))
    assert cluster_state.wait_for_config(seconds=300, controller="c") == {"digest": "d"}


def test_a_failure_of_the_controller_ends_the_wait():
    later(0.2, lambda: cluster_state.report_failure("configure: /home is read-only"))
    began = time.monotonic()
    with pytest.raises(SetupError, match=r"the set-up of c failed.*: configure: /home is read-only"):
        cluster_state.wait_for_config(seconds=300, controller="c")
    assert time.monotonic() - began < 300


def test_a_withdrawn_failure_does_not_end_the_wait(place):
    cluster_state.report_failure("configure: an old story")
    later(0.2, cluster_state.withdraw_failure)
    (place / "new").write_text("{}")
    later(1, lambda: (place / "new").replace(place / "cluster.json"))
    assert cluster_state.wait_for_config(seconds=300, controller="c") == {}


def test_only_failures_are_withdrawn():
    cluster_state.report("configured", "d")
    cluster_state.withdraw_failure()
    assert cluster_state.reports()["c"].get("state") == "configured"


def test_a_node_ignores_failures():
    cluster_state.report_failure("configure: x")
    with pytest.raises(SetupError, match="did not come within 1 s"):
        cluster_state.wait_for_config(seconds=1)


def test_without_a_cluster_state_nothing_is_reported(place, monkeypatch):
    monkeypatch.setattr(cluster_state, "FOLDER", place / "a/b/c")
    cluster_state.report_failure("x")
    assert cluster_state.reports() == {}


def test_an_unreadable_config_version_is_an_error(place):
    (place / "cluster.json").write_text("{")
    with pytest.raises(SetupError, match="drift STACK --mend"):
        cluster_state.wait_for_config(seconds=1)
