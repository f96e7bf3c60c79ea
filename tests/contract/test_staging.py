"""Scripts are there before slurm.conf names what runs them, and go after it no longer does."""

import itertools
import json
from typing import Any

import pulumi
import pytest

from components.slurm import payload
from tests.contract.test_edits import LAB, REACHES_ALL, Difference, between, edited, program
from tests.harness import deploy

TEXT = "#!/bin/sh\ntrue\n"
SCRIPTS = {"scripts": [{"name": "check", "text": TEXT}]}
RXDM = {"rxdm": {"partitions": ["gpu"], "file": "lab/slurm/rxdm.sh"}}


def lab(**slurm: Any) -> dict[str, Any]:
    return edited(lambda c: c.update(slurm=slurm)) if slurm else LAB


@pytest.fixture(scope="module")
def recording():
    return program(lab(**SCRIPTS, **RXDM))


class TestOrder:
    def test_setup_then_scripts_then_the_patch_then_slurm_conf(self, recording):
        names = ["lab-controller-setup", "lab-prologs", "lab-rxdm", "lab-controller-configure", "lab-ready"]
        steps = [recording.one(name) for name in names]
        for earlier, later in itertools.pairwise(steps):
            assert recording.waits_for(later, earlier)
        assert "Prolog=" in steps[3].inputs["stdin"]

    def test_without_scripts_there_is_nothing(self):
        names = {one.name for one in program(LAB).resources}
        assert not {"lab-prologs", "lab-rxdm"} & names

    def test_without_rxdm_there_is_no_patch(self):
        names = {one.name for one in program(lab(**SCRIPTS)).resources}
        assert {"lab-prologs", "lab-rxdm"} & names == {"lab-prologs"}


class TestEdits:
    def test_the_first_script(self):
        found = between(program(LAB), program(lab(**SCRIPTS)))
        assert found == Difference(added={"lab-prologs"}, removed=set(), changed=REACHES_ALL)

    def test_another_text_is_staged_and_tried(self):
        other = {"scripts": [{"name": "check", "text": TEXT + "true\n"}]}
        found = between(program(lab(**SCRIPTS)), program(lab(**other)))
        assert found == Difference(added=set(), removed=set(), changed={"lab-prologs", "lab-ready"})

    def test_a_node_more_stages_nothing(self):
        before = lab(**SCRIPTS, **RXDM)
        after = edited(lambda c: c["nodesets"]["cpu"].update(count=3), before)
        found = between(program(before), program(after))
        assert "lab-cpu-2" in found.added
        assert not {"lab-prologs", "lab-rxdm"} & found.changed


class TestUndoing:
    @pytest.mark.parametrize(("name", "undo"), [("lab-prologs", "no-prologs"), ("lab-rxdm", "no-rxdm")])
    def test_it_is_undone_where_the_machine_stays_and_not_where_it_goes(self, recording, name, undo):
        one = recording.one(name)
        assert one.inputs["delete"] == f"test ! -e {payload.SETUP} || python3 {payload.SETUP} {undo}"
        assert one.request.deletedWith == recording.one("lab-controller").urn


class TestInput:
    def test_what_the_controller_is_told(self, recording):
        told = json.loads(recording.one("lab-prologs").inputs["stdin"])
        assert told["scripts"] == {"check": {"lines": ["#!/bin/sh", "true", ""]}}
        assert told["rxdm"]["lines"][0] == "#!/bin/bash"
        assert [mount["target"] for mount in told["mounts"]] == ["/home", "/opt/apps", "/var/mail"]
        assert told["controller_nodeset"] == ""

    def test_a_nodeset_on_the_controller_is_named(self):
        found = program(edited(lambda c: c["nodesets"].update(shared={"on": "controller"}), lab(**SCRIPTS)))
        assert json.loads(found.one("lab-prologs").inputs["stdin"])["controller_nodeset"] == "shared"

    def test_what_the_patch_is_told(self, recording):
        told = json.loads(recording.one("lab-rxdm").inputs["stdin"])
        assert set(told["known"].values()) == {"ok", "patch", "refuse"}
        assert set(told["links"].values()) == {"../scripts/rxdm"}

    def test_a_file_that_is_not_there_stops_before_anything_is_made(self):
        with pytest.raises(pulumi.RunError, match=r"slurm\.scripts\[0\]\.file\n  given: .*No such file"):
            deploy({"hpc:cluster": lab(scripts=[{"name": "check", "file": "scripts/gone.sh"}])})


def test_packages_are_part_of_the_image_and_an_input_only_where_there_are_some():
    """With an input more, every stack that is up would show a change."""
    plain = program(LAB).one("lab-image").inputs
    more = program(edited(lambda c: c.update(image={"packages": ["podman", "crun"]}))).one("lab-image").inputs
    assert "packages" not in plain
    assert more["packages"] == ["podman", "crun"]
    assert more["digest"] != plain["digest"]
