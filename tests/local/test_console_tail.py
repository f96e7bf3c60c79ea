"""When a machine does not come, the error shows what it said last, readable in a log file."""

from pathlib import Path

from components.local.host.machine import Design, console_tail, nspawn_command


def test_colours_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"first\r\n\r\n[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mssh\x1b[0m.\r\n\xff\n")
    assert console_tail(path, lines=2) == ["[  OK  ] Started ssh.", "\ufffd"]


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert console_tail(path, lines=1) == ["line 99999"]


def test_no_console_is_no_error(tmp_path: Path) -> None:
    assert console_tail(tmp_path / "none") == []


def test_a_machine_takes_nothing_from_the_host_but_what_is_bound_into_it() -> None:
    design = Design(
        root=Path("/m"), images=Path("/i"), stack="dev", name="dev-cpu-0", address="10.77.0.9", prefix=20, image="x"
    )
    made = nspawn_command(design, "0" * 32)
    assert made[0] == "systemd-nspawn"
    assert {"--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no", "--register=no"} <= set(made)
    assert "--hostname=dev-cpu-0" in made
    assert [item for item in made if "bind" in item] == [
        "--bind=/m/stacks/dev/shared:/srv/shared",
        "--bind-ro=/m/stacks/dev/hosts:/etc/hosts",
    ]
