"""Names on the host: the kernel's limits are kept, and no two stacks or machines ever share one."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from components.local.host.bridge import bridge_name, interface_name, machine_id
from components.local.host.paths import DEFAULT_ROOT

labels = st.from_regex(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
roots = st.sampled_from([DEFAULT_ROOT, Path("/srv/a"), Path("/srv/b")])


@given(roots, labels)
def test_bridges_have_names_that_the_kernel_takes(root: Path, stack: str) -> None:
    name = bridge_name(root, stack)
    assert len(name) <= 15
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.lists(st.tuples(roots, labels), unique=True, min_size=2, max_size=30))
def test_no_two_stacks_share_a_bridge(stacks: list[tuple[Path, str]]) -> None:
    assert len({bridge_name(*stack) for stack in stacks}) == len(stacks)


@given(st.lists(st.tuples(roots, labels, labels), unique=True, min_size=2, max_size=30))
def test_no_two_machines_share_an_interface(machines: list[tuple[Path, str, str]]) -> None:
    names = {interface_name(*machine) for machine in machines}
    assert len(names) == len(machines)
    assert all(len(name) == 15 for name in names)


def test_a_short_stack_is_recognised_by_its_bridge() -> None:
    assert bridge_name(DEFAULT_ROOT, "dev") == "hpc-dev"


def test_stack_and_machine_do_not_run_into_each_other() -> None:
    assert machine_id(DEFAULT_ROOT, "a-b", "c") != machine_id(DEFAULT_ROOT, "a", "b-c")
