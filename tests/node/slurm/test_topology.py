"""topology.conf is valid whatever places nodes report, and nodes of a job keep their order."""

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interface import TopologyInput
from slurm import conf_changes, hostlist, jobs, nodes, scheduler, slurmctld, topology
from system import cluster_state
from system.host import SetupError

from tests import squeue

NODES = {"gpu": [f"dev-gpu-{index}" for index in range(12)], "cpu-2": ["dev-cpu-2-0", "dev-cpu-2-1"], "none": []}
NAMES = [name for names in NODES.values() for name in names]
PART = st.one_of(
    st.text(max_size=9), st.from_regex(r"[0-9]{19,30}", fullmatch=True), st.sampled_from(["a", "b", "x,y", "[0-9]"])
)
PLACE = st.one_of(st.text(max_size=20), st.lists(PART, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts)))
PLACES = st.dictionaries(st.sampled_from(NAMES), PLACE)
NEAR = st.dictionaries(st.sampled_from(NAMES), st.from_regex(r"/[ab]/[1-3]/h", fullmatch=True))


def rendered(places, *, before="", held=()):
    present = topology.present(before)
    return topology.render(topology.paths(NODES, places, present=present, held=held), places.values())


def order(text):
    """Nodes as slurmctld numbers them with SwitchAsNodeRank."""
    leaves = [hostlist.expand(row["nodes"]) for row in conf_changes.parse_lines(text, "switchname") if "nodes" in row]
    return list(chain.from_iterable(leaves))


@given(places=PLACES)
def test_slurm_reads_it_whatever_nodes_report(places):
    text = rendered(places)
    assert text.isascii()
    rows = conf_changes.parse_lines(text, "switchname")
    assert all(set(row) in ({"switchname", "nodes"}, {"switchname", "switches"}) for row in rows)
    names = [row["switchname"] for row in rows]
    assert len(names) == len(set(names))
    assert all(len(name) <= 64 and len(name) - len(name.rstrip("0123456789")) <= 18 for name in names)
    assert sorted(order(text)) == sorted(NAMES)
    # One tree: each switch but the root is below one other.
    children = [child for row in rows if "switches" in row for child in row["switches"].split(",")]
    assert sorted(children) == sorted(set(names) - {topology.ROOT})
    assert set(topology.present(text)) == set(NAMES)


@given(places=NEAR)
def test_nodes_of_a_block_share_a_leaf_below_their_cluster_and_others_their_nodesets(places):
    found = topology.present(rendered(places))
    for name in NAMES:
        parts = places.get(name, "").split("/")[1:3]
        nodeset = next(nodeset for nodeset, names in NODES.items() if name in names)
        assert found[name] == (topology.switches("/".join(["", *parts, "x"])) if parts else (f"ns-{nodeset}",))


@given(before=NEAR, after=PLACES, held=st.sets(st.sampled_from(NAMES)))
def test_nodes_that_are_held_keep_their_switch_and_their_order(before, after, held):
    old = rendered(before)
    new = rendered(after, before=old, held=held)
    assert [name for name in order(new) if name in held] == [name for name in order(old) if name in held]
    assert all(topology.present(new)[name] == topology.present(old)[name] for name in held)


@given(places=PLACES)
def test_the_same_places_have_the_same_text(places):
    text = rendered(places)
    assert rendered(dict(reversed(places.items())), before=text) == text


def test_blocks_that_no_cloud_has_are_left_out():
    nodes = [f"n-{index}" for index in range(topology.MAX_LEAVES + 1)]
    for cluster, leaf in (("one", ("c-",)), ("{}", ("all",))):
        places = {name: f"/{cluster.format(name)}/{name}/h" for name in nodes}
        found = topology.present(topology.render(topology.paths({"n": nodes}, places, present={}, held=())))
        assert {path[0][: len(leaf[0])] for path in found.values()} == set(leaf)


class TestRefresh:
    """A controller whose slurmctld refuses a file with `nonsense` in it, as one of 22.05 does: it ends."""

    @pytest.fixture
    def commands(self, tmp_path, monkeypatch):
        """The commands that slurmctld was given."""
        commands: list[str] = []
        for name in ("ETC", "APPLIED"):
            monkeypatch.setattr(slurmctld, name, tmp_path / name.lower())
        for name in ("SETTINGS", "REFUSED"):
            monkeypatch.setattr(topology, name, tmp_path / name.lower())
        monkeypatch.setattr(topology, "write", lambda path, text: path.write_text(text))
        monkeypatch.setattr(cluster_state, "REPORTS", tmp_path / "nodes")
        (tmp_path / "nodes").mkdir()
        slurmctld.ETC.mkdir()
        settings: TopologyInput = {"nodesets": {"gpu": "dev-gpu-[0-11]"}, "places": True}
        topology.SETTINGS.write_text(json.dumps(settings))
        slurmctld.APPLIED.write_text(json.dumps({"slurm.conf": "", **topology.files(settings)}))
        (slurmctld.ETC / topology.NAME).write_text(slurmctld.applied()[topology.NAME])

        queue = [{"T": "RUNNING", "N": hosts} for hosts in ("dev-gpu-[0-1]", "dev-gpu-3")]

        def run(*command: str, **_: object) -> str:
            if command != nodes.COMMAND:
                commands.append(command[0] if command[0] == "squeue" else " ".join(command))
            if command[1] == "reconfigure" and "nonsense" in (slurmctld.ETC / topology.NAME).read_text():
                raise SetupError("Unable to contact slurm controller")
            if command == nodes.COMMAND:
                return f"NodeName=dev-gpu-7 State={self.state}\n"
            return squeue.printed(command, queue) if command[0] == "squeue" else ""

        self.state = "IDLE"
        monkeypatch.setattr(slurmctld, "write", lambda path, text, **_: path.write_text(text))
        monkeypatch.setattr(slurmctld, "wait_for_slurmctld", lambda: None)
        monkeypatch.setattr(slurmctld, "service", lambda *_, **__: commands.append("start"))
        monkeypatch.setattr(slurmctld, "forget", lambda _: commands.append("forget"))
        monkeypatch.setattr(slurmctld, "run", run)
        monkeypatch.setattr(scheduler, "run", run)
        monkeypatch.setattr(topology, "succeeds", lambda *_: True)
        return commands

    def report(self, **places: str) -> None:
        for name, place in places.items():
            text = json.dumps({"state": "configured", "place": place})
            (cluster_state.REPORTS / f"{name.replace('_', '-')}.json").write_text(text)

    def test_reconfigures_when_a_place_is_new_and_only_then(self, commands):
        assert topology.refresh() is False
        self.report(dev_gpu_5="/c/b/h")
        topology.refresh()
        topology.refresh()
        assert commands == ["squeue", "squeue", "scontrol reconfigure", "squeue"]
        assert slurmctld.applied()[topology.NAME] == (slurmctld.ETC / topology.NAME).read_text()

    def test_nodes_of_a_job_on_several_wait_for_its_end(self, commands, monkeypatch):
        self.report(dev_gpu_0="/c/b/h", dev_gpu_3="/c/b/i")
        assert topology.refresh() is True
        found = topology.present(slurmctld.applied()[topology.NAME])
        assert (found["dev-gpu-0"], found["dev-gpu-3"]) == (("ns-gpu",), topology.switches("/c/b/i"))
        row = {"T": "RUNNING", "N": "dev-gpu-3"}
        monkeypatch.setattr(
            scheduler, "run", lambda *words: "" if words == nodes.COMMAND else squeue.printed(words, [row])
        )
        assert topology.refresh() is False
        assert topology.present(slurmctld.applied()[topology.NAME])["dev-gpu-0"] == topology.switches("/c/b/h")

    @pytest.mark.parametrize("state", ["MIXED+CLOUD+POWERING_UP", "IDLE+CLOUD+POWERED_DOWN+POWER_UP"])
    def test_all_wait_while_a_node_boots(self, commands, state):
        """Also a switch that no node has any more, and whose place is a comment of the file."""
        self.report(dev_gpu_3="/c/b/h")
        topology.refresh()
        before, self.state = slurmctld.applied()[topology.NAME], state
        self.report(dev_gpu_3="/c/b2/h")
        assert topology.refresh() is True
        settings = json.loads(topology.SETTINGS.read_text())
        assert topology.files(settings) == {topology.NAME: before}, "nor does an `up` with other edits change it"
        assert commands.count("scontrol reconfigure") == 1
        assert topology.refresh(during_boots=True) is False
        assert commands.count("scontrol reconfigure") == 2
        assert topology.present(slurmctld.applied()[topology.NAME])["dev-gpu-3"] == topology.switches("/c/b2/h")

    def test_a_new_node_does_not_wait_for_boots(self, commands):
        self.state = "MIXED+CLOUD+POWERING_UP"
        wider: TopologyInput = {"nodesets": {"gpu": "dev-gpu-[0-12]"}, "places": True}
        assert "dev-gpu-12" in topology.present(topology.files(wider)[topology.NAME])

    def test_nothing_waits_if_no_place_has_changed(self, commands):
        self.state = "MIXED+CLOUD+POWERING_UP"
        assert topology.refresh() is False

    def test_all_wait_while_slurmctld_can_not_be_asked(self, commands, monkeypatch):
        monkeypatch.setattr(topology, "succeeds", lambda *_: False)
        self.report(dev_gpu_3="/c/b/i")
        assert topology.refresh() is True
        assert commands == []

    def test_a_file_that_is_refused_gives_way_to_the_one_before(self, commands, monkeypatch):
        before = slurmctld.applied()
        render = topology.render
        monkeypatch.setattr(topology, "render", lambda *_: "SwitchName=nonsense\n")
        with pytest.raises(SetupError, match="slurmctld refuses it, and runs with the one of before"):
            topology.refresh()
        assert commands == ["squeue", "scontrol reconfigure", "forget", "start"]
        assert slurmctld.applied() == before
        assert (slurmctld.ETC / topology.NAME).read_text() == before[topology.NAME]
        # Neither the service nor an `up` tries it again; another one is tried.
        topology.refresh()
        assert topology.files(json.loads(topology.SETTINGS.read_text())) == {topology.NAME: before[topology.NAME]}
        assert commands.count("scontrol reconfigure") == 1
        assert topology.refused().startswith("slurmctld refuses it, and runs with the one of before")
        self.report(dev_gpu_5="/c/b/h")
        monkeypatch.setattr(topology, "render", render)
        topology.refresh()
        assert (commands.count("scontrol reconfigure"), topology.refused()) == (2, "")

    def test_a_refusal_is_forgotten_when_the_places_of_before_are_back(self, commands, monkeypatch):
        render = topology.render
        monkeypatch.setattr(topology, "render", lambda *_: "SwitchName=nonsense\n")
        with pytest.raises(SetupError):
            topology.refresh()
        monkeypatch.setattr(topology, "render", render)
        topology.refresh()
        assert (commands.count("scontrol reconfigure"), topology.refused()) == (1, "")

    def test_one_that_somebody_changed_is_written_again(self, commands):
        text = (slurmctld.ETC / topology.NAME).read_text()
        (slurmctld.ETC / topology.NAME).write_text("SwitchName=mine Nodes=dev-gpu-0\n")
        topology.refresh()
        assert (slurmctld.ETC / topology.NAME).read_text() == text

    def test_the_states_of_jobs_that_have_nodes_are_asked_for(self):
        assert {"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED"} <= set(jobs.HOLDING.split(","))
