"""A prolog that is staged runs nowhere before it is judged; patching is one step, can be repeated, and is undone."""

import hashlib
import json
import os

import prologs
import pytest
import rxdm
from predicate import DEBIAN, PATCHED
from system import SetupError

ORIGINAL = f"#!/bin/bash\nif {DEBIAN}; then\n\techo export\nfi\n"
GOOD = ORIGINAL.replace(DEBIAN, PATCHED)
STRANGE = "#!/bin/bash\nsource /etc/os-release\n"
LINKS = {"partition-a3-prolog_slurmd.d/rxdm.prolog_slurmd": "../scripts/rxdm"}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(prologs, "TREE", tmp_path)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    (tmp_path / "scripts").mkdir()
    return tmp_path


def stage(tree, text: str) -> None:
    (tree / "scripts/rxdm.staged").write_text(text)
    (tree / "scripts/rxdm.staged").chmod(0o755)


def converge(known: dict[str, str] | None = None) -> None:
    rxdm.converge({"known": known or {}, "links": LINKS, "sha256": ""})


def live(tree) -> str:
    return (tree / "scripts/rxdm").read_text()


class TestVerdicts:
    def test_one_for_debian_only_is_patched(self, tree, capsys):
        stage(tree, ORIGINAL)
        converge()
        assert live(tree) == GOOD
        assert (tree / "scripts/rxdm.orig").read_text() == ORIGINAL
        assert prologs.record() == {"before": sha(ORIGINAL), "after": sha(GOOD), "verdict": "patch"}
        assert sha(ORIGINAL) in (said := capsys.readouterr().out)
        assert sha(GOOD) in said
        assert (tree / "partition-a3-prolog_slurmd.d/rxdm.prolog_slurmd").resolve() == tree / "scripts/rxdm"
        assert not (tree / "scripts/rxdm.staged").exists()

    def test_one_that_is_right_stays_as_it_is(self, tree):
        stage(tree, GOOD)
        converge()
        assert live(tree) == GOOD
        assert not (tree / "scripts/rxdm.orig").exists()
        assert prologs.record()["verdict"] == "ok"

    def test_one_that_is_known_to_be_right_need_not_be_understood(self, tree):
        stage(tree, STRANGE)
        converge({sha(STRANGE): "ok"})
        assert live(tree) == STRANGE

    def test_one_that_is_known_is_patched_like_any_other(self, tree):
        stage(tree, ORIGINAL)
        converge({sha(ORIGINAL): "patch"})
        assert live(tree) == GOOD

    @pytest.mark.parametrize(
        ("text", "known"), [(STRANGE, {}), (GOOD, {sha(GOOD): "refuse"}), (STRANGE, {sha(STRANGE): "patch"})]
    )
    def test_any_other_is_refused_by_its_hash_and_runs_nowhere(self, tree, text, known):
        stage(tree, ORIGINAL)
        converge()
        stage(tree, text)
        with pytest.raises(SetupError) as caught:
            converge(known)
        assert sha(text) in str(caught.value)
        assert "left as it is" in str(caught.value)
        assert live(tree) == GOOD, "the version before goes on"
        assert (tree / "scripts/rxdm.staged").read_text() == text

    def test_a_first_one_that_is_refused_is_not_linked(self, tree):
        stage(tree, STRANGE)
        with pytest.raises(SetupError):
            converge()
        assert not (tree / "scripts/rxdm").exists()
        assert not (tree / "partition-a3-prolog_slurmd.d").exists()

    def test_one_that_bash_cannot_read_is_refused(self, tree):
        stage(tree, ORIGINAL + "if\n")
        with pytest.raises(SetupError, match="bash cannot read it"):
            converge()
        assert not (tree / "scripts/rxdm").exists()
        assert [path.name for path in (tree / "scripts").glob(".*")] == []

    def test_nothing_staged_is_said(self, tree):
        with pytest.raises(SetupError, match="is not there"):
            converge()


class TestRepeating:
    def test_again_changes_nothing(self, tree):
        stage(tree, ORIGINAL)
        converge()
        before = (tree / "scripts/rxdm").stat().st_ino
        converge()
        assert (tree / "scripts/rxdm").stat().st_ino == before

    @pytest.mark.parametrize("done", ["orig", "live"])
    def test_a_killed_run_is_finished_by_the_next(self, tree, done):
        stage(tree, ORIGINAL)
        (tree / "scripts/rxdm.orig").write_text(ORIGINAL)
        if done == "live":
            (tree / "scripts/rxdm").write_text(GOOD)
        converge()
        assert live(tree) == GOOD
        assert prologs.record() == {"before": sha(ORIGINAL), "after": sha(GOOD), "verdict": "patch"}

    def test_mode_and_link_stay(self, tree):
        (tree / "elsewhere").write_text("#!/bin/sh\n")
        (tree / "elsewhere").chmod(0o700)
        (tree / "scripts/rxdm").symlink_to("../elsewhere")
        stage(tree, ORIGINAL)
        converge()
        assert (tree / "scripts/rxdm").is_symlink()
        assert (tree / "elsewhere").read_text() == GOOD
        assert (tree / "elsewhere").stat().st_mode & 0o777 == 0o700


class TestUndoing:
    def test_the_original_comes_back_and_again_is_fine(self, tree):
        stage(tree, ORIGINAL)
        converge()
        for _ in range(2):
            rxdm.undo()
            assert live(tree) == ORIGINAL
        assert not (tree / "scripts/rxdm.orig").exists()

    def test_without_its_copy_too(self, tree):
        stage(tree, ORIGINAL)
        converge()
        (tree / "scripts/rxdm.orig").unlink()
        rxdm.undo()
        assert live(tree) == ORIGINAL

    def test_it_can_be_patched_again(self, tree):
        stage(tree, ORIGINAL)
        converge()
        rxdm.undo()
        converge()
        assert live(tree) == GOOD

    def test_nothing_there_is_fine(self, tree):
        (tree / "scripts").rmdir()
        rxdm.undo()
        assert list(tree.iterdir()) == []

    def test_what_somebody_changed_since_is_left_alone(self, tree):
        stage(tree, ORIGINAL)
        converge()
        (tree / "scripts/rxdm").write_text("#!/bin/sh\n# mine\n")
        rxdm.undo()
        assert live(tree) == "#!/bin/sh\n# mine\n"

    def test_what_was_right_stays(self, tree):
        stage(tree, GOOD)
        converge()
        rxdm.undo()
        assert live(tree) == GOOD
        assert json.loads((tree / "scripts/rxdm.json").read_text())["verdict"] == "ok"
