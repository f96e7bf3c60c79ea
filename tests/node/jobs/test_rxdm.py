"""A staged rxdm prolog is checked before it runs anywhere; the patch is atomic, idempotent and can be undone."""

import hashlib
import json
import os
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jobs import prologs, rxdm
from jobs.rxdm import DEBIAN, OK, PATCH, PATCHED, UNKNOWN, check_failure, classify, patch_check, unpatch_check
from system import host, installation, mounts, state_disk
from system.host import SetupError

from tests.cluster.stacks import ROOT

ORIGINAL = f"#!/bin/bash\nif {DEBIAN}; then\n\techo export\nfi\n"
GOOD = ORIGINAL.replace(DEBIAN, PATCHED)
STRANGE = "#!/bin/bash\nsource /etc/os-release\n"
LINKS = {"partition-a3-prolog_slurmd.d/rxdm.prolog_slurmd": "../scripts/rxdm"}


def right(text: str) -> str:
    """A version as it is to run."""
    return text if PATCHED in text else text.replace(DEBIAN, PATCHED)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(prologs, "TREE", tmp_path)
    monkeypatch.setattr(host, "SHARED", tmp_path)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(rxdm, "trial_failure", lambda _: "")  # tried in test_rxdm_trial.py, which needs root
    (tmp_path / "scripts").mkdir()
    return tmp_path


def stage(tree, text: str) -> None:
    (tree / "scripts/rxdm.staged").write_text(text)
    (tree / "scripts/rxdm.staged").chmod(0o755)


def converge(known: dict[str, str] | None = None, *, of: str = ORIGINAL) -> None:
    rxdm.converge({"known": known or {}, "links": LINKS, "sha256": sha(of)})


def live(tree) -> str:
    return (tree / "scripts/rxdm").read_text()


class TestOutcomes:
    def test_a_version_for_debian_only_is_patched(self, tree, capsys):
        stage(tree, ORIGINAL)
        converge()
        assert live(tree) == GOOD
        assert (tree / "scripts/rxdm.orig").read_text() == ORIGINAL
        assert prologs.rxdm_record() == {"before": sha(ORIGINAL), "after": sha(GOOD), "outcome": "patch"}
        assert sha(ORIGINAL) in (said := capsys.readouterr().out)
        assert sha(GOOD) in said
        assert (tree / "partition-a3-prolog_slurmd.d/rxdm.prolog_slurmd").resolve() == tree / "scripts/rxdm"
        assert not (tree / "scripts/rxdm.staged").exists()
        before = (tree / "scripts/rxdm").stat().st_ino
        converge()
        assert (tree / "scripts/rxdm").stat().st_ino == before, "again changes nothing"

    def test_a_right_version_is_not_changed(self, tree):
        stage(tree, GOOD)
        converge(of=GOOD)
        assert live(tree) == GOOD
        assert not (tree / "scripts/rxdm.orig").exists()
        assert prologs.rxdm_record()["outcome"] == "ok"

    def test_a_known_version_is_not_checked_by_its_text(self, tree):
        stage(tree, STRANGE)
        converge({sha(STRANGE): "ok"}, of=STRANGE)
        assert live(tree) == STRANGE

    @pytest.mark.parametrize(
        ("text", "known"), [(STRANGE, {}), (GOOD, {sha(GOOD): "refuse"}), (STRANGE, {sha(STRANGE): "patch"})]
    )
    def test_any_other_version_is_refused_with_its_hash(self, tree, text, known):
        stage(tree, ORIGINAL)
        converge()
        stage(tree, text)
        with pytest.raises(SetupError) as caught:
            converge(known, of=text)
        assert sha(text) in str(caught.value)
        assert "left as it is" in str(caught.value)
        assert live(tree) == GOOD, "the version before goes on"
        assert (tree / "scripts/rxdm.staged").read_text() == text

    @pytest.mark.parametrize(
        ("staged", "wanted", "why"),
        [
            (STRANGE, STRANGE, "left as it is"),
            (ORIGINAL + "if\n", ORIGINAL + "if\n", "bash cannot read it"),
            (ORIGINAL, GOOD, sha(GOOD)),
            ("", ORIGINAL, "drift STACK --mend"),
        ],
        ids=["not understood", "not readable", "another version", "nothing staged"],
    )
    def test_a_refused_version_is_neither_installed_nor_linked(self, tree, staged, wanted, why):
        if staged:
            stage(tree, staged)
        with pytest.raises(SetupError, match=why):
            converge(of=wanted)
        assert {path.name for path in (tree / "scripts").iterdir()} <= {"rxdm.staged"}
        assert not (tree / "partition-a3-prolog_slurmd.d").exists()

    def test_a_version_that_fails_its_trial_is_refused(self, tree, monkeypatch):
        monkeypatch.setattr(rxdm, "trial_failure", lambda text: "it writes no profile" if text == GOOD else "")
        stage(tree, ORIGINAL)
        with pytest.raises(SetupError, match="it writes no profile"):
            converge()
        assert not (tree / "scripts/rxdm").exists()
        converge({sha(ORIGINAL): "patch"})
        assert live(tree) == GOOD, "what is known by its hash need not be tried"


class TestReplace:
    def test_mode_and_link_stay(self, tree):
        (tree / "elsewhere").write_text("#!/bin/sh\n")
        (tree / "elsewhere").chmod(0o700)
        (tree / "scripts/rxdm").symlink_to("../elsewhere")
        stage(tree, ORIGINAL)
        converge()
        assert (tree / "scripts/rxdm").is_symlink()
        assert (tree / "elsewhere").read_text() == GOOD
        assert (tree / "elsewhere").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("again", ["the same content", "another"])
    def test_a_mode_without_execute_permission_is_corrected(self, tree, again):
        stage(tree, ORIGINAL)
        converge()
        (tree / "scripts/rxdm").chmod(0o644)
        if again == "another":
            (tree / "scripts/rxdm").write_text("#!/bin/sh\n")
        converge()
        assert live(tree) == GOOD
        assert (tree / "scripts/rxdm").stat().st_mode & 0o777 == 0o755


OTHER = ORIGINAL + "# another version\n"
BROKEN = ORIGINAL + "if\n"


class FullError(OSError):
    """The disk is full."""


class TestVersionsThatFollowEachOther:
    """No file of one version, however its `up` ended, goes live in the place of the next."""

    @pytest.fixture
    def up(self, monkeypatch):
        """Run the phases `prologs` and `rxdm` of a stack that names this version."""
        monkeypatch.setattr(installation, "wait_until_installed", lambda: None)
        monkeypatch.setattr(state_disk, "converge", lambda _: None)
        monkeypatch.setattr(mounts, "mount_all", lambda _: None)

        def run(text: str) -> None:
            source = {"lines": text.split("\n"), "sha256": sha(text)}
            tree = {"mounts": [], "scripts": {}, "links": LINKS, "cluster": "lab", "controller_nodeset": ""}
            prologs.stage({**tree, "rxdm": source})
            converge(of=text)

        return run

    def test_a_refused_version_does_not_block_the_next(self, tree, up):
        up(ORIGINAL)
        with pytest.raises(SetupError, match="bash cannot read it"):
            up(BROKEN)
        assert live(tree) == GOOD
        up(ORIGINAL)
        up(OTHER)
        assert live(tree) == right(OTHER)
        rxdm.undo()
        assert live(tree) == OTHER

    @pytest.mark.parametrize("second", [OTHER, GOOD, BROKEN])
    @pytest.mark.parametrize("first", [ORIGINAL, GOOD + "# first\n"])
    def test_after_a_failed_write_either_version_can_be_installed(self, tree, up, monkeypatch, first, second):
        """Each file operation of the second `up` fails once. Then the first version, or the second, is installed."""
        operations = [(os, "fdopen"), (type(tree), "replace"), (type(tree), "unlink"), (type(tree), "symlink_to")]
        countdown, count = 0, 0

        def failing(operation):
            def call(*args, **kwargs):
                nonlocal countdown
                countdown -= 1
                if countdown == 0:
                    raise FullError(28, "No space left on device")
                return operation(*args, **kwargs)

            return call

        up(first)
        for owner, name in operations:
            monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
        ended = False
        while not ended:
            count += 1
            countdown = count
            with suppress(FullError, SetupError):
                up(second)
            ended = countdown > 0
            countdown = 0
            assert live(tree) in {right(first), right(second)}
            up(first)
            assert live(tree) == right(first)
            assert prologs.rxdm_record()["before"] == sha(first)
        assert count >= 3, "the faults were met"
        if second != BROKEN:
            up(second)
            assert live(tree) == right(second)


class TestUndo:
    @pytest.mark.parametrize("copy", [True, False])
    def test_the_original_comes_back_also_without_its_copy_and_can_be_patched_again(self, tree, copy):
        stage(tree, ORIGINAL)
        converge()
        if not copy:
            (tree / "scripts/rxdm.orig").unlink()
        for _ in range(2):
            rxdm.undo()
            assert live(tree) == ORIGINAL
        assert not (tree / "scripts/rxdm.orig").exists()
        converge()
        assert live(tree) == GOOD

    def test_undo_without_files_does_nothing(self, tree):
        (tree / "scripts").rmdir()
        rxdm.undo()
        assert list(tree.iterdir()) == []

    def test_undo_leaves_a_file_that_somebody_changed(self, tree):
        stage(tree, ORIGINAL)
        converge()
        (tree / "scripts/rxdm").write_text("#!/bin/sh\n# mine\n")
        rxdm.undo()
        assert live(tree) == "#!/bin/sh\n# mine\n"

    def test_undo_leaves_a_version_that_was_right(self, tree):
        stage(tree, GOOD)
        converge(of=GOOD)
        rxdm.undo()
        assert live(tree) == GOOD
        assert json.loads((tree / "scripts/rxdm.json").read_text())["outcome"] == "ok"


STAND_IN = (ROOT / "scripts/local/rxdm.sh").read_text()
UPSTREAM = f'( {DEBIAN} || (grep -q "ID=ubuntu" /etc/os-release) )'
GUIDES = '(grep -q "ID=ubuntu" /etc/os-release && lsb_release -rs | grep -q "22.04")'

LINES = st.lists(
    st.text(alphabet='abc "$\\()|&;#={}\t', max_size=30).map(str.rstrip).filter(lambda line: not line.endswith("\\")),
    max_size=6,
).map(lambda lines: "".join(f"{line}\n" for line in lines))
INDENTS = st.text(alphabet=" \t", max_size=4)


def script(check: str, before: str = "", after: str = "", indent: str = "\t") -> str:
    return f"#!/bin/bash\n{before}{indent}if {check}; then\n{indent}\techo export\n{indent}fi\n{after}"


class TestClassify:
    @pytest.mark.parametrize(
        ("check", "outcome"),
        [
            (DEBIAN, PATCH),
            (DEBIAN.replace(" && ", "  &&  "), PATCH),
            (PATCHED, OK),
            (UPSTREAM, OK),
            (GUIDES, OK),
            ('grep -q "ID=ubuntu" /etc/os-release', OK),
            # Right for other releases only, and not ours to change.
            ('(grep -q "ID=ubuntu" /etc/os-release && lsb_release -rs | grep -q "24.04")', UNKNOWN),
            (DEBIAN.replace('"12"', '"11"'), UNKNOWN),
            ('grep -q "ID=rocky" /etc/os-release', UNKNOWN),
        ],
    )
    def test_checks_that_are_understood(self, check, outcome):
        assert classify(script(check))[0] == outcome

    @pytest.mark.parametrize(
        "text",
        [
            "#!/bin/bash\necho no check at all\n",
            script(DEBIAN, after=script(DEBIAN)),
            script(UPSTREAM, after=script(DEBIAN)),
            script(DEBIAN, before=". /etc/os-release\n"),
            script(UPSTREAM, after="[[ $(lsb_release -is) == Debian ]] && export X=1\n"),
            script(DEBIAN).replace(" && ", " \\\n&& "),
            script("[[ $(grep ^ID= /etc/os-release) == ID=ubuntu ]]"),
            script('grep -q "$(touch never)" /etc/os-release'),
            script('grep -q "ID=ubuntu" /etc/os-release; touch x'),
            "",
        ],
    )
    def test_other_texts_are_unknown(self, text):
        assert classify(text)[0] == UNKNOWN

    def test_comments_are_ignored(self):
        assert classify(script(DEBIAN, before="# os-release says debian\n\t# lsb_release too\n"))[0] == PATCH

    def test_a_check_that_runs_other_programs_is_never_tried(self, tmp_path):
        """bash never runs a check that is not understood."""
        mark = tmp_path / "mark"
        for inside in (
            f"$(touch {mark})",
            f"`touch {mark}`",
            f'" ; touch {mark}; "',
            f'x" /etc/os-release | tee {mark} "',
        ):
            assert classify(script(f'grep -q "{inside}" /etc/os-release'))[0] == UNKNOWN
        assert not mark.exists()


class TestPatch:
    def test_failures_of_checks(self):
        assert check_failure(script(PATCHED)) == ""
        assert check_failure(script(UPSTREAM)) == ""
        assert check_failure(script(DEBIAN)) == "its check is false on Ubuntu 22.04"
        assert check_failure(script(GUIDES)) == "its check is false on Debian 12"
        assert check_failure(script('grep -q "ID" /etc/os-release')) == "its check is true on Rocky Linux 8.10"
        assert check_failure("#!/bin/sh\n") == "it has 0 checks"

    def test_the_patch_changes_one_line(self):
        changed = [
            (old, new)
            for old, new in zip(STAND_IN.splitlines(), patch_check(STAND_IN).splitlines(), strict=True)
            if old != new
        ]
        assert [new.strip() for _, new in changed] == [f"if {PATCHED}; then"]

    def test_the_stand_in_is_patched(self):
        assert classify(STAND_IN)[0] == PATCH
        assert check_failure(patch_check(STAND_IN)) == ""

    @given(before=LINES, after=LINES, indent=INDENTS)
    def test_patch_and_unpatch_keep_the_rest_of_the_text(self, before, after, indent):
        text = script(DEBIAN, before, after, indent)
        patched = patch_check(text)
        assert unpatch_check(patched) == text
        assert patched.replace(PATCHED, DEBIAN) == text
        assert classify(text)[0] == PATCH
        assert unpatch_check(text) == text

    @given(before=LINES, after=LINES, check=st.sampled_from([UPSTREAM, PATCHED, GUIDES]))
    def test_a_right_check_is_found_in_any_text(self, before, after, check):
        assert classify(script(check, before, after))[0] == OK

    @given(text=st.text())
    def test_any_text_without_a_check_is_unknown(self, text):
        assume("os-release" not in text)
        assert classify(text) == (UNKNOWN, "it asks for no operating system")

    def test_a_long_line_is_parsed_without_backtracking(self):
        """Each word of a check can be read in one way only, so that a line that fails at its end fails at once."""
        assert classify(script("|| " * 3000 + "x /etc/os-release"))[0] == UNKNOWN


def test_systems_match_the_catalog():
    """Against the catalog's own fields of Ubuntu, which machines of a rehearsal present."""
    from cluster.catalog import SYSTEMS  # noqa: PLC0415 - scripts/node itself must not know of it

    release, text = rxdm.SYSTEMS["Ubuntu 22.04"]
    ubuntu = SYSTEMS["ubuntu-2204"]
    assert release == ubuntu["VERSION_ID"]
    assert all(line.partition("=")[2].strip('"') == ubuntu[line.partition("=")[0]] for line in text.splitlines())
