"""The rxdm prolog is judged by its text, wherever in it the check stands, and patching changes that check only."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jobs import rxdm
from jobs.rxdm import DEBIAN, OK, PATCH, PATCHED, UNKNOWN, check_failure, classify, patch_check, unpatch_check

from tests.cluster.stacks import ROOT

STAND_IN = (ROOT / "lab/slurm/rxdm.sh").read_text()
UPSTREAM = f'( {DEBIAN} || (grep -q "ID=ubuntu" /etc/os-release) )'
GUIDES = '(grep -q "ID=ubuntu" /etc/os-release && lsb_release -rs | grep -q "22.04")'

LINES = st.lists(
    st.text(alphabet='abc "$\\()|&;#={}\t', max_size=30).map(str.rstrip).filter(lambda line: not line.endswith("\\")),
    max_size=6,
).map(lambda lines: "".join(f"{line}\n" for line in lines))
INDENTS = st.text(alphabet=" \t", max_size=4)


def script(check: str, before: str = "", after: str = "", indent: str = "\t") -> str:
    return f"#!/bin/bash\n{before}{indent}if {check}; then\n{indent}\techo export\n{indent}fi\n{after}"


class TestJudging:
    @pytest.mark.parametrize(
        ("check", "verdict"),
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
    def test_checks_that_are_understood(self, check, verdict):
        assert classify(script(check))[0] == verdict

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
    def test_whatever_else_is_left_alone(self, text):
        assert classify(text)[0] == UNKNOWN

    def test_comments_about_systems_do_not_count(self):
        assert classify(script(DEBIAN, before="# os-release says debian\n\t# lsb_release too\n"))[0] == PATCH

    def test_the_check_that_is_tried_can_start_nothing_else(self, tmp_path):
        """What is not understood is never given to bash."""
        mark = tmp_path / "mark"
        for inside in (
            f"$(touch {mark})",
            f"`touch {mark}`",
            f'" ; touch {mark}; "',
            f'x" /etc/os-release | tee {mark} "',
        ):
            assert classify(script(f'grep -q "{inside}" /etc/os-release'))[0] == UNKNOWN
        assert not mark.exists()


class TestPatching:
    def test_the_check_then_holds_on_both_systems_and_no_other(self):
        assert check_failure(script(PATCHED)) == ""
        assert check_failure(script(UPSTREAM)) == ""
        assert check_failure(script(DEBIAN)) == "its check is false on Ubuntu 22.04"
        assert check_failure(script(GUIDES)) == "its check is false on Debian 12"
        assert check_failure(script('grep -q "ID" /etc/os-release')) == "its check is true on Rocky Linux 8.10"
        assert check_failure("#!/bin/sh\n") == "it has 0 checks"

    def test_only_that_line_changes(self):
        changed = [
            (old, new)
            for old, new in zip(STAND_IN.splitlines(), patch_check(STAND_IN).splitlines(), strict=True)
            if old != new
        ]
        assert [new.strip() for _, new in changed] == [f"if {PATCHED}; then"]

    def test_the_stand_in_is_like_the_versions_for_debian_only(self):
        assert classify(STAND_IN)[0] == PATCH
        assert check_failure(patch_check(STAND_IN)) == ""

    @given(before=LINES, after=LINES, indent=INDENTS)
    def test_anything_around_it_stays_and_comes_back(self, before, after, indent):
        text = script(DEBIAN, before, after, indent)
        patched = patch_check(text)
        assert unpatch_check(patched) == text
        assert patched.replace(PATCHED, DEBIAN) == text
        assert classify(text)[0] == PATCH
        assert unpatch_check(text) == text

    @given(before=LINES, after=LINES, check=st.sampled_from([UPSTREAM, PATCHED, GUIDES]))
    def test_what_is_right_is_right_in_any_surroundings(self, before, after, check):
        assert classify(script(check, before, after))[0] == OK

    @given(text=st.text())
    def test_no_text_is_too_strange_to_be_judged(self, text):
        assume("os-release" not in text)
        assert classify(text) == (UNKNOWN, "it asks for no operating system")

    def test_a_long_line_of_words_takes_no_time(self):
        """Each word of a check can be read in one way only, so that a line that fails at its end fails at once."""
        assert classify(script("|| " * 3000 + "x /etc/os-release"))[0] == UNKNOWN


def test_systems_are_what_these_systems_say():
    """Against the catalog's own fields of Ubuntu, which machines of a rehearsal present."""
    from cluster.catalog import SYSTEMS  # noqa: PLC0415 - scripts/node itself must not know of it

    release, text = rxdm.SYSTEMS["Ubuntu 22.04"]
    ubuntu = SYSTEMS["ubuntu-2204"]
    assert release == ubuntu["VERSION_ID"]
    assert all(line.partition("=")[2].strip('"') == ubuntu[line.partition("=")[0]] for line in text.splitlines())
