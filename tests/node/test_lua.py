"""job_submit.lua is told from what is no Lua by the library that slurmctld's plugin itself is linked with."""

import ctypes.util
from pathlib import Path

import pytest
from slurm import slurmctld
from system.host import SetupError

GOOD = "function slurm_job_submit(job, parts, uid)\n  return slurm.SUCCESS\nend\n"
LIBRARIES = [name for release in ("5.1", "5.2", "5.3", "5.4") if (name := ctypes.util.find_library(f"lua{release}"))]


def with_plugin(root: Path, library: str) -> Path:
    """A root with a plugin that names `library`, as the dynamic section of the real one does."""
    plugin = root / "usr/lib/x86_64-linux-gnu/slurm-wlm/job_submit_lua.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(b"\x7fELF\0liblua.so.no-such\0" + library.encode() + b"\0libc.so.6\0")
    return root


def test_a_machine_without_the_plugin_says_so(tmp_path: Path):
    with pytest.raises(SetupError, match=r"no job_submit_lua\.so"):
        slurmctld.check_job_submit(GOOD, tmp_path)


def test_where_the_library_is_not_there_slurmctld_is_left_to_tell(tmp_path: Path):
    slurmctld.check_job_submit("no lua", with_plugin(tmp_path, "liblua0.0.so.0"))


@pytest.mark.skipif(not LIBRARIES, reason="this machine has no Lua; the clusters of tests/e2e have")
@pytest.mark.parametrize("library", LIBRARIES)
def test_grammar_is_told_with_its_line(tmp_path: Path, library: str):
    root = with_plugin(tmp_path, library)
    slurmctld.check_job_submit(GOOD, root)
    with pytest.raises(SetupError, match=r"slurm.job_submit_lua: job_submit.lua:2: "):
        slurmctld.check_job_submit(GOOD.replace("return slurm", "retur slurm"), root)
