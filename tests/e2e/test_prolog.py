"""Scripts before and after jobs, on machines that present themselves as Ubuntu 22.04, as A3 Mega nodes do.

The tests follow each other on one cluster: a prolog as it comes, patched, refused, failing, and gone again.
"""

import hashlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.platforms.local.rehearsal import STAND_INS
from tests.e2e.cluster import ROOT, Cluster, eventually
from tests.node.jobs.test_rxdm_trial import prolog

pytestmark = pytest.mark.e2e

TREE = "/opt/apps/adm/slurm"
STAND_IN = "scripts/local/rxdm.sh"
PROFILE = "/var/lib/tcpxo/lib64/nccl-env-profile.sh"
EXPORT = "export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices"
PARTITION = {"nodesets": ["cpu"], "default": True}
AILING = '#!/bin/sh\nif [ -e /run/ailing ]; then echo "GPU 3 has fallen off the bus"; exit 1; fi\n'
SEEN = '#!/bin/sh\necho "seen $SLURM_SCRIPT_CONTEXT"\n'
SCRIPTS = [{"name": "90-health", "text": AILING}, {"name": "10-seen", "on": ["prolog", "epilog"], "text": SEEN}]


@pytest.fixture(scope="module")
def mega(bring_up: Callable[..., Cluster]) -> Cluster:
    """Two nodes whose partition has the stand-in for rxdm, as it comes: what the guide has without its step 3-2."""
    return bring_up(
        "mega",
        image={"presents_as": "ubuntu-2204"},
        login={"on": "controller"},
        nodesets={"cpu": {"count": 2}},
        partitions={"cpu": {**PARTITION, "scripts": [{"name": "raw", "on": ["prolog", "epilog"], "file": STAND_IN}]}},
    )


def profile(cluster: Cluster) -> str:
    """NCCL's profile as a job on two nodes finds it on the first."""
    return cluster.run("srun", "-N2", "sh", "-c", f'[ "$SLURM_NODEID" = 1 ] || cat {PROFILE}')


def live(cluster: Cluster) -> str:
    return cluster.inside("controller", f"sha256sum {TREE}/scripts/rxdm").split()[0]


def test_machines_say_that_they_are_ubuntu(mega: Cluster):
    assert mega.inside("cpu-0", ". /etc/os-release; echo $ID $VERSION_ID; lsb_release -rs") == "ubuntu 22.04\n22.04"


def test_as_it_comes_the_prolog_leaves_out_what_nccl_needs(mega: Cluster):
    found = profile(mega)
    assert "export NCCL_SOCKET_IFNAME=eth0" in found
    assert EXPORT not in found


def test_rxdm_is_patched_and_slurmd_runs_it(mega: Cluster):
    boots = mega.boots()
    mega.edit(
        lambda c: c.update(
            partitions={"cpu": PARTITION}, slurm={"scripts": SCRIPTS, "rxdm": {"partitions": ["cpu"], "file": STAND_IN}}
        )
    )
    printed = mega.up()
    assert "rxdm: patched for Ubuntu 22.04" in printed
    assert "partition cpu: rxdm has run on 2 nodes, and NCCL's profile has its exports" in printed
    assert hashlib.sha256((ROOT / STAND_IN).read_bytes()).hexdigest() in printed
    assert live(mega) in printed
    assert EXPORT in profile(mega)
    assert mega.inside("controller", f"cat {TREE}/scripts/rxdm.orig") == (ROOT / STAND_IN).read_text().strip()
    assert mega.inside("controller", f"test ! -e {TREE}/scripts/raw && echo gone") == "gone"
    assert mega.boots() == boots


def test_it_runs_while_the_job_does(mega: Cluster):
    look = "pgrep -f '[s]tands-for-rxdm' >/dev/null && echo there || echo gone"
    assert mega.run("srun", "-N2", "sh", "-c", look).split() == ["there", "there"]
    eventually(lambda: mega.inside("cpu-0", look) == "gone", what="the end of the stand-in")


def test_a_job_on_one_node_does_without(mega: Cluster):
    mega.inside("cpu-0", f"rm {PROFILE}")
    mega.run("srun", "-N1", "-w", "mega-cpu-0", "true")
    assert mega.inside("cpu-0", f"test ! -e {PROFILE} && echo none") == "none"


def test_the_log_has_job_script_and_exit_code(mega: Cluster):
    eventually(lambda: "seen epilog_slurmd" in mega.inside("cpu-0", "cat /var/log/slurm/epilog.log"), what="it")
    lines = mega.inside("cpu-0", "tail -n 7 /var/log/slurm/prolog.log").splitlines()
    assert [line.partition(" slurm_prolog ")[2] or line for line in lines] == [
        "10-seen: starts (user alice, partition cpu)",
        "seen prolog_slurmd",
        "10-seen: ended, exit code 0",
        "90-health: starts (user alice, partition cpu)",
        "90-health: ended, exit code 0",
        "rxdm: starts (user alice, partition cpu)",
        "rxdm: ended, exit code 0",
    ]
    assert mega.inside("cpu-0", "cat /etc/logrotate.d/hpc-slurm").count("/var/log/slurm/*.log") == 1


def test_the_warm_up_lets_rxdm_run_before_the_first_job(mega: Cluster):
    """A node that is warmed alone gets another one for its job, since rxdm needs two."""
    before = mega.copy()
    there = f"test -e {PROFILE} && echo there || echo gone"
    mega.edit(lambda c: c["slurm"].update(warm_up={}))
    mega.inside("cpu-0", f"rm -f {PROFILE}")
    printed = mega.up()
    assert "warm-up: 2 of 2 nodes are warm" in printed
    assert re.search(r"node mega-cpu-[01]: ready", printed)
    assert mega.inside("cpu-0", there) == "there"
    mega.inside("cpu-0", f"rm {PROFILE}")
    assert "warm-up: 1 of 1 nodes are warm" in mega.command("warm-up", "--nodes", "cpu-1")
    assert mega.inside("cpu-0", there) == "there"
    assert "Nothing to do" in mega.up()
    mega.revert(before)


def test_a_prolog_of_googles_shape_runs_to_its_end_with_stand_ins(mega: Cluster, tmp_path: Path):
    """Its own text, as far as containers go; where it does nothing, jobs on two nodes are not left to plain TCP."""
    before = mega.copy()
    (tmp_path / "rxdm.sh").write_text(prolog())
    mega.edit(lambda c: c["slurm"]["rxdm"].update(file=str(tmp_path / "rxdm.sh")))
    mega.edit(lambda c: c["slurm"]["scripts"].append(STAND_INS))
    printed = mega.up()
    assert "rxdm: already right for Ubuntu 22.04" in printed
    assert "partition cpu: rxdm has run on 2 nodes" in printed
    assert "Buffer manager initialization complete" in mega.inside("cpu-0", "cat /var/log/slurm/prolog.log")
    # As where the metadata server can't be reached: the prolog then takes the node for another type of machine. NCCL's
    # profile is not one that was written a moment ago.
    away = "cp /usr/bin/curl /root/curl; printf '#!/bin/sh\\nexit 7\\n' >/usr/bin/curl"
    mega.inside("cpu-1", f"{away}; touch -d '1 minute ago' {PROFILE}")
    assert mega.run("srun", "-N1", "-w", "mega-cpu-1", "hostname") == "mega-cpu-1"
    # It waits in the queue where a busy machine makes its nodes late; srun would give it up.
    number = mega.run("sbatch", "--parsable", "-N2", "--output=/dev/null", "--wrap", "true")
    eventually(lambda: "Prolog error" in mega.run("sinfo", "-R"), what="the drain")
    mega.run("scancel", number)
    assert f"rxdm: did not write {PROFILE}, so NCCL would use plain TCP" in mega.inside(
        "cpu-1", "cat /var/log/slurm/prolog.log"
    )
    mega.inside("cpu-1", "cp /root/curl /usr/bin/curl")
    mega.inside("controller", "scontrol update nodename=mega-cpu-1 state=resume")
    assert EXPORT in profile(mega)
    mega.revert(before)
    mega.up()


def test_an_unknown_prolog_fails_by_its_hash_and_runs_nowhere(mega: Cluster, tmp_path: Path):
    strange = "#!/bin/bash\nsource /etc/os-release\n[[ $ID == debian ]] && echo export\n"
    (tmp_path / "strange.sh").write_text(strange)
    before, kept = mega.copy(), live(mega)
    mega.edit(lambda c: c["slurm"]["rxdm"].update(file=str(tmp_path / "strange.sh")))
    failed = mega.hpc("up", check=False)
    assert failed.returncode == 1
    assert hashlib.sha256(strange.encode()).hexdigest() in (said := failed.stdout + failed.stderr)
    assert "asks for its operating system in a way that is not understood" in said
    assert mega.inside("controller", f"cat {TREE}/scripts/rxdm.staged") == strange.strip()
    assert live(mega) == kept
    assert EXPORT in profile(mega)
    mega.revert(before)
    mega.up()
    assert mega.inside("controller", f"test ! -e {TREE}/scripts/rxdm.staged && echo gone") == "gone"


SERVER = """\
import http.server, ssl
PAGES = {pages!r}
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGES[self.path].encode())
server = http.server.HTTPServer(("127.0.0.1", 8443), Pages)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/root/pages.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
SERVE = """
cd /root
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=pages -addext subjectAltName=IP:127.0.0.1 \\
    -addext keyUsage=digitalSignature,keyCertSign -keyout key.pem -out pages.pem 2>/dev/null
trusted=$(python3 -c 'import ssl; print(ssl.get_default_verify_paths().openssl_cafile)')
mkdir -p "$(dirname "$trusted")"; cat pages.pem >>"$trusted"; cat key.pem >>pages.pem
cat >pages.py <<'END'
{program}END
systemd-run --quiet --unit=pages python3 /root/pages.py
until python3 -c "import socket; socket.create_connection(('127.0.0.1', 8443))" 2>/dev/null; do sleep 0.2; done
"""


def serve(cluster: Cluster, pages: dict[str, str]) -> None:
    """Serve pages on the controller, to itself, by https with a certificate that it trusts."""
    cluster.inside("controller", SERVE.format(program=SERVER.format(pages=pages)))


def test_an_error_page_does_not_become_a_script(mega: Cluster):
    script = "#!/bin/sh\necho fetched\n"
    serve(mega, {"/script": script, "/expired": "<!DOCTYPE html>\n<title>404</title>\n"})
    pinned = {"name": "50-fetched", "sha256": hashlib.sha256(script.encode()).hexdigest()}
    before = mega.copy()
    mega.edit(lambda c: c["slurm"]["scripts"].append({**pinned, "url": "https://127.0.0.1:8443/expired"}))
    failed = mega.hpc("up", check=False)
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1
    assert "https://127.0.0.1:8443/expired is not the script that the stack names; nothing was replaced" in said
    assert f"expected sha256: {pinned['sha256']}" in said
    assert "first line:      <!DOCTYPE html>" in said
    assert mega.inside("controller", f"ls {TREE}/scripts") == "10-seen\n90-health\nrxdm\nrxdm.json\nrxdm.orig"
    mega.edit(lambda c: c["slurm"]["scripts"][-1].update(url="https://127.0.0.1:8443/script"))
    mega.up()
    assert mega.inside("controller", f"cat {TREE}/prolog_slurmd.d/50-fetched.prolog_slurmd") == script.strip()
    mega.revert(before)


def test_a_prolog_that_fails_drains_its_node_and_says_why(mega: Cluster):
    mega.inside("cpu-1", "touch /run/ailing")
    # Two jobs, each of which takes a whole node: one of them meets the ill one, and goes elsewhere.
    words = ("--parsable", "--exclusive", "--chdir=/tmp", "--output=/dev/null", "--wrap", "sleep 4")
    # At once: on a busy machine the first would be over before a second command gets there.
    numbers = mega.run("sh", "-c", f"for n in 1 2; do {shlex.join(['sbatch', *words])}; done").splitlines()
    eventually(lambda: "Prolog error" in mega.run("sinfo", "-R"), what="the drain")
    assert "jobs-held" not in mega.findings()
    told = ("squeue", "--noheader", "--states=all", f"--jobs={','.join(numbers)}", "--format=%T %N")
    eventually(lambda: "PENDING" in mega.run(*told), what="the job's return to the queue")
    # slurmctld lets two minutes pass before it tries again.
    mega.inside(
        "controller", f"for job in {' '.join(numbers)}; do scontrol update JobId=$job StartTime=now; done; true"
    )
    eventually(lambda: mega.run(*told).splitlines() == ["COMPLETED mega-cpu-0"] * 2, what="the end of both jobs")
    (line,) = [line for line in mega.run("sinfo", "-R").splitlines() if "Prolog error" in line]
    assert line.split()[-1] == "mega-cpu-1"
    log = mega.inside("cpu-1", "cat /var/log/slurm/prolog.log")
    assert "GPU 3 has fallen off the bus" in log
    assert "90-health: failed, exit code 1" in log
    assert "90-health: failed, exit code 1; see /var/log/slurm/prolog.log" in mega.inside(
        "cpu-1", "cat /var/log/slurm/slurmd.log"
    )
    mega.inside("cpu-1", "rm /run/ailing")
    mega.inside("controller", "scontrol update nodename=mega-cpu-1 state=resume")
    assert mega.run("srun", "-w", "mega-cpu-1", "hostname") == "mega-cpu-1"


def test_a_lost_tree_drains_with_words_and_is_mended(mega: Cluster):
    eventually(lambda: mega.run("squeue", "--noheader") == "", what="the end of epilogs, which are there as well")
    mega.inside("controller", f"rm -r {TREE}/scripts {TREE}/slurm_prolog")
    number = mega.run("sbatch", "--parsable", "-w", "mega-cpu-1", "--output=/dev/null", "--wrap", "true")
    eventually(lambda: "Prolog error" in mega.run("sinfo", "-R"), what="the drain")
    mega.run("scancel", number)
    assert f"Unable to create list of paths [{TREE}/slurm_prolog]" in mega.inside(
        "cpu-1", "cat /var/log/slurm/slurmd.log"
    )
    told = mega.call("drift", "mega")
    assert told.returncode == 1
    assert f"{TREE}/slurm_prolog\n    stack: -> slurm_mux\n    there: no such file" in told.stdout
    mega.command("drift", "--mend")
    mega.inside("controller", "scontrol update nodename=mega-cpu-1 state=resume")
    assert EXPORT in profile(mega)


def test_without_scripts_slurm_conf_is_silent_and_only_others_files_stay(mega: Cluster):
    mega.inside("controller", f"echo mine > {TREE}/scripts/mine")
    before = mega.copy()
    mega.edit(lambda c: c.pop("slurm"))
    printed = mega.up()
    assert "rxdm: the original is back" in printed
    assert mega.inside("controller", "scontrol show config | grep -cE '^(Prolog|Epilog) .*slurm_' || true") == "0"
    assert mega.inside("controller", f"find {TREE} -type f -o -type l") == f"{TREE}/scripts/mine"
    logged = mega.inside("cpu-0", "cat /var/log/slurm/prolog.log")
    assert mega.run("srun", "-N2", "hostname").split()
    assert mega.inside("cpu-0", "cat /var/log/slurm/prolog.log") == logged
    assert "Nothing to do" in mega.up()
    mega.revert(before)
    mega.up()
    assert EXPORT in profile(mega)


def test_destroy_needs_no_machine_to_answer(mega: Cluster, nothing_left):
    """A controller that is dead cannot undo anything on itself, and need not: it goes with all that is on it."""
    mega.cut_power("controller")
    mega.hpc("destroy")
    assert nothing_left("mega") == []
    assert mega.hpc("destroy").returncode == 0
