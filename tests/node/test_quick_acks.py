"""Routes to a machine's own addresses get `quickack` once, and are otherwise left as they are."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/node/quick_acks.sh"
IP = """#!/bin/sh
if [ "$3" = show ]; then
    echo 'local 10.7.0.2 dev host0 proto kernel scope host src 10.7.0.2 '
    echo 'local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 quickack 1 '
else
    echo "$@" >> "$LOG"
fi
"""


def test_each_route_is_changed_once(tmp_path):
    (tmp_path / "ip").write_text(IP)
    (tmp_path / "ip").chmod(0o755)
    log = tmp_path / "log"
    subprocess.run(["sh", str(SCRIPT)], env={"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log)}, check=True)
    assert log.read_text().splitlines() == [
        "-4 route change table local local 10.7.0.2 dev host0 proto kernel scope host src 10.7.0.2 quickack 1"
    ]
