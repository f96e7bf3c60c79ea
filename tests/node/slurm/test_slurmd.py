"""plugstack.conf of Debian 13 without its include, and the link to MPI's library."""

from pathlib import Path

from slurm import slurmd

DEBIAN = "include /etc/slurm/plugstack.conf.d/*.conf\n"


def test_an_include_without_files_is_removed(tmp_path: Path):
    (tmp_path / "plugstack.conf").write_text(DEBIAN)
    (tmp_path / "plugstack.conf.d").mkdir()
    assert slurmd.drop_empty_include(tmp_path)
    assert (tmp_path / "plugstack.conf").read_text() == slurmd.EMPTY
    assert not slurmd.drop_empty_include(tmp_path)


def test_an_operators_plugins_stay(tmp_path: Path):
    (tmp_path / "plugstack.conf.d").mkdir()
    (tmp_path / "plugstack.conf.d" / "site.conf").write_text("required /usr/lib/site.so\n")
    (tmp_path / "plugstack.conf").write_text(DEBIAN)
    assert not slurmd.drop_empty_include(tmp_path)
    assert (tmp_path / "plugstack.conf").read_text() == DEBIAN


def test_other_lines_stay(tmp_path: Path):
    text = f"required /usr/local/lib/slurm/spank_pyxis.so\n{DEBIAN}"
    (tmp_path / "plugstack.conf").write_text(text)
    assert not slurmd.drop_empty_include(tmp_path)
    assert (tmp_path / "plugstack.conf").read_text() == text
    (tmp_path / "plugstack.conf").unlink()
    assert not slurmd.drop_empty_include(tmp_path)


def test_the_library_gets_the_name_that_the_plugin_opens(tmp_path: Path):
    lib = tmp_path / "x86_64-linux-gnu" / "pmix2" / "lib"
    lib.mkdir(parents=True)
    (lib / "libpmix.so.2").write_text("the library")
    assert slurmd.link_pmix(tmp_path)
    assert not slurmd.link_pmix(tmp_path)
    assert (lib / "libpmix.so").read_text() == "the library"
