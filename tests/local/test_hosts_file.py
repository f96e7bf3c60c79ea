"""One hosts file serves all machines of a stack: it is bound into them, so it must stay the same file."""

from pathlib import Path

from components.local.host.network import render_hosts, write_in_place


def test_machines_come_in_the_order_of_their_addresses() -> None:
    text = render_hosts({"b": "10.0.0.10", "a": "10.0.0.9"}, "10.0.0.1")
    assert text.splitlines()[-3:] == ["10.0.0.1 gateway", "10.0.0.9 a", "10.0.0.10 b"]


def test_new_text_comes_into_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "stack" / "hosts"
    write_in_place(path, "a long first text\n")
    inode = path.stat().st_ino
    write_in_place(path, "short\n")
    assert path.read_text() == "short\n"
    assert path.stat().st_ino == inode
