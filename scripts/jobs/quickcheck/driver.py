"""Runs the checks of a cluster from its login machine, as a user. Standard library only.

    python3 driver.py SPEC      SPEC: JSON, as cluster/jobs/quickcheck.py writes it

It starts srun for each node in parallel, and prints a line of JSON for each result. With srun the output of a job comes
back over the network, so that a node without its file systems can be checked too; for the same reason the programs are
on srun's command line. When its standard input ends, it cancels what it has started, and ends.
"""

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

AT_ONCE = 64
"""Nodes that are checked in parallel: each needs an srun on the login machine."""
GRACE = 15
"""Seconds that srun has to end by itself after its job was cancelled."""
DAY = 86_400
IMMEDIATE = 15
"""Least seconds that a job waits for a free node, as the epilog of the node's last job may still run."""
CONTAINER_SECONDS, IMAGE_SECONDS = 300, 600
MARK = "hpc-check "
PASS, FAIL, SKIP = "pass", "fail", "skip"
Result = tuple[str, ...]
"""Status, text and output of a check."""
NOT_BEGUN = "Unable to allocate resources: "
"""The start of srun's error for a job that slurmctld did not start (src/srun/allocate.c, _retry, 22.05 to 26.05)."""
BUSY = ("nodes are busy", "Immediate execution impossible", "can not start immediately")
"""Messages after it where other jobs have the nodes (slurm_errno.c, 22.05 to 26.05: ESLURM_NODES_BUSY,
ESLURM_NOT_TOP_PRIORITY and ESLURM_FRAGMENTATION, ESLURM_CAN_NOT_START_IMMEDIATELY)."""
_HERE = Path(__file__).parent
_print_lock = threading.Lock()


class Ended(NamedTuple):
    """The end of a program."""

    code: int
    how: str
    """`exit code 1`, or `no end within 60 s`."""
    out: str
    err: str

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """Lines of node.py or container.py; one that is cut is left out."""
        found = []
        for line in self.out.splitlines():
            with contextlib.suppress(ValueError):
                found += [json.loads(line[len(MARK) :])] if line.startswith(MARK) else []
        return found

    @property
    def output(self) -> str:
        lines = f"{self.err}\n{self.out}".splitlines()
        return "\n".join(line for line in lines if line.strip() and not line.startswith(MARK))[-65_536:]

    @property
    def refused(self) -> str:
        """The reason why slurmctld did not start the job; empty if it did."""
        began = not self.code or MARK in self.out or NOT_BEGUN not in self.err
        return "" if began else " ".join(self.output.split())

    @property
    def busy(self) -> bool:
        """True if other jobs have the nodes."""
        return any(text in self.refused for text in BUSY)


class CheckRun:
    """A run of the checks."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.name = f"hpc-check-{spec['run']}"
        self.stop = threading.Event()
        self.running: list[subprocess.Popen[str]] = []
        self.lock = threading.Lock()
        self.image = spec["image"]
        self.good: dict[str, dict[str, Any]] = {}
        """Nodes whose first job succeeded, with their part of the spec."""
        self.home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        self.folder = self.home / f".{self.name}"

    def work(self) -> None:
        """Check each node, then all nodes of each partition together, then what the login machine has of them."""
        try:
            self.remove_leftovers()
            self.folder.mkdir(mode=0o700)
            (self.folder / "login").write_text(f"{self.spec['run']}\n")
            if self.spec["container"] and self.spec["shared_home"] and self.image and not self.image.startswith("/"):
                self.image = self.downloaded(self.image)
            nodes = [(node, group) for group in self.spec["groups"] for node in hostnames(group["nodes"])]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda row: self.check_node(*row), nodes))
                partitions = self.spec["partitions"]
                list(pool.map(self.check_partition, [name for name in partitions if partitions[name]["together"]]))
            self.check_homes()
            self.check_accounting()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.scancel()

    def remove_leftovers(self) -> None:
        """Remove folders of killed runs: those that are older than a day, which no run takes."""
        for old in self.home.glob(".hpc-check-*"):
            if time.time() - old.lstat().st_mtime > DAY:
                shutil.rmtree(old, ignore_errors=True)

    def downloaded(self, name: str) -> str:
        """Return the path of an image, downloaded once to a shared home by the login machine, or its name.

        Downloads by all nodes of a large cluster would exceed the limits of a registry.
        """
        # Only enroot has a # between registry and image.
        programs = {"enroot": (["import", "--output"], name), "apptainer": (["pull"], name.replace("#", "/", 1))}
        for program in filter(shutil.which, programs):
            words, source = programs[program]
            place = str(self.folder / f"image.{program}")
            report(note=f"{program}: downloading {name} on the login machine")
            ended = self.execute([program, *words, place, f"docker://{source}"], IMAGE_SECONDS)
            if ended.code == 0:
                return place
            report(note=f"{program}: {ended.how} {ended.output[-500:]}")
        return name

    def check_node(self, node: str, group: dict[str, Any]) -> None:
        """Run the jobs of a node, one after the other, and report their results."""
        ended = self.srun("node", [node], group, gpus=int(group["one_gpu"]))
        if ended.refused:
            why, todo = (
                ended.refused,
                "choose a user who may with --as USER, or other nodes with --partition or --nodes",
            )
            if ended.busy:
                why, todo = f"no room on {node}: {jobs_on(node) or why}", "run it again, or with --wait"
            row = {"node": node, "partition": group["partition"], "why": why, "todo": todo}
            report(**row, unavailable=not ended.busy)
            return
        status, text = answers(ended, [node], group["tasks"])
        if status == FAIL:
            self.report(group, {"hello": (status, text, ended.output)}, node)
            return
        self.good[node] = group
        self.report(group, {"hello": (status, f"{text}, {max(task['cpus'] for task in ended.tasks)} CPUs")}, node)
        results: dict[str, Result] = next(task["results"] for task in ended.tasks if "results" in task)
        if group["all_gpus"]:
            results |= self.all_gpus(node, group, results["gpus"])
        if self.spec["container"]:
            results |= self.container(node, group)
        self.report(group, results, node)

    def all_gpus(self, node: str, group: dict[str, Any], counted: Result) -> dict[str, Result]:
        """Check a job with all GPUs of a node, whose number is checked already."""
        ended = self.srun("gpus", [node], {**group, "tasks": 1}, gpus=group["gpus"])
        if ended.busy:
            text = f"{counted[1]}; not tried together: other jobs took GPUs of the node meanwhile"
            return {"gpus": (counted[0], text)}
        if ended.tasks:
            return ended.tasks[0]["results"]
        problem = f"a job with all {group['gpus']} GPUs gave no answer, {ended.how}"
        return {"gpus": (FAIL, f"{counted[1]}; {problem}" if counted[0] == FAIL else problem, ended.output)}

    def container(self, node: str, group: dict[str, Any]) -> dict[str, Result]:
        """Check that a container starts. Without pyxis, which adds an option to srun, container.py starts it."""
        job = {**group, "tasks": 1, "memory": group["container_memory"]}
        ended = self.srun("container", [node], job, seconds=max(CONTAINER_SECONDS, self.spec["seconds"]))
        if ended.busy:
            return {"container": (SKIP, "other jobs took the node meanwhile")}
        if ended.tasks:
            return ended.tasks[0]["results"]
        if self.spec["pyxis"] and ended.code == 0 and "ID=" in ended.out:
            return {"container": (PASS, "pyxis")}
        return {"container": (FAIL, f"no container started, {ended.how}", ended.output)}

    def check_partition(self, name: str) -> None:
        """Run a job on all nodes of a partition whose own job succeeded, or several if it limits the nodes of a job."""
        limits, seconds = self.spec["partitions"][name], self.spec["seconds"]
        nodes = [node for node in hostnames(limits["together"]) if node in self.good]
        if len(nodes) < 2:
            self.report({"partition": name}, {"together": (SKIP, "fewer than two nodes answered alone")})
        for start in range(0, len(nodes), limits["most_nodes"]):
            part = nodes[start : start + limits["most_nodes"]]
            if len(part) < 2:
                continue
            least = {key: min(self.good[node][key] for node in part) for key in ("tasks", "memory")}
            job = {"partition": name, **least}
            ended = self.srun("together", part, job, seconds=seconds + limits["prolog_seconds"])
            if ended.busy:
                result: Result = (SKIP, f"no room on all {len(part)} nodes at once")
            else:
                status, text = answers(ended, part, least["tasks"])
                result = (status, text, ended.output if status == FAIL else "")
            self.report(job, {"together": result})

    def check_homes(self) -> None:
        """Check the files that nodes wrote to the home."""
        for node, group in self.good.items() if self.spec["shared_home"] else ():
            path = self.folder / f"node-{node}"
            wrong = "" if path.exists() else "what the node wrote is not on the login machine"
            if not wrong and path.stat().st_uid != os.getuid():
                wrong = "what the node wrote has another owner on the login machine"
            if wrong:
                self.report(group, {"home": (FAIL, wrong)}, node)

    def check_accounting(self) -> None:
        """Check the records of the nodes' jobs."""
        words = ["--allocations", "--noheader", "--parsable2", "--starttime=now-2hours"]
        fields = "--format=NodeList,JobID,User,Account,QOS,State"
        # slurmctld sends new jobs to slurmdbd every five seconds; that of a busy cluster may take as long as jobs do.
        deadline, records = time.monotonic() + self.spec["seconds"], dict[str, list[str]]()
        while True:
            done = ask("sacct", f"--name={self.name}", *words, fields)
            rows = [line.split("|") for line in done.stdout.splitlines()]
            records = {row[0]: row[1:] for row in reversed(rows) if row[-1] not in ("PENDING", "RUNNING")}
            if (
                done.returncode
                or records.keys() >= self.good.keys()
                or time.monotonic() > deadline
                or self.stop.is_set()
            ):
                break
            time.sleep(0.5)
        for node, group in self.good.items():
            result: Result = (FAIL, "sacct has no job of this node")
            if done.returncode:
                result = (FAIL, "sacct gave no answer", done.stderr.strip()[-2000:])
            elif node in records:
                job, user, account, qos, _ = records[node]
                values = {"user": user, "account": account, "QOS": qos}
                lacking = ", ".join(name for name, value in values.items() if not value)
                wrong = f"job {job} is recorded without {lacking}"
                result = (FAIL, wrong) if lacking else (PASS, f"account {account}, QOS {qos}")
            self.report(group, {"accounting": result}, node)

    def report(self, job: dict[str, Any], results: dict[str, Result], node: str = "") -> None:
        """Print results of a node, or of a partition, unless the run was stopped."""
        for check, result in results.items() if not self.stop.is_set() else ():
            values = dict(zip(("status", "text", "output"), result, strict=False))
            report(check=check, node=node, partition=job["partition"], **values)

    def srun(self, key: str, nodes: list[str], job: dict[str, Any], *, gpus: int = 0, seconds: int = 0) -> Ended:
        """Run srun once, for at most so many seconds, else those of the spec."""
        seconds = seconds or self.spec["seconds"]
        return self.execute(self.line(key, nodes, job, gpus=gpus, seconds=seconds), seconds)

    def line(self, key: str, nodes: list[str], job: dict[str, Any], *, gpus: int, seconds: int) -> list[str]:
        """Return the command line of srun for a job."""
        spec = self.spec
        # A job that requests more time than its partition allows never starts.
        minutes = min(-(-seconds // 60), spec["partitions"][job["partition"]]["most_minutes"])
        line = ["srun", "--chdir=/", "--kill-on-bad-exit=0", f"--job-name={self.name}", f"--comment={key}"]
        line += [f"--time={minutes}", f"--partition={job['partition']}", f"--nodelist={','.join(nodes)}"]
        line += [f"--nodes={len(nodes)}", f"--ntasks={len(nodes) * job['tasks']}", f"--mem={job['memory']}M"]
        line += [f"--gres=gpu:{gpus}"] if gpus else []
        line += ["--exclusive"] if spec["exclusive"] else []
        line += [] if key == "together" else ["--mpi=none"]
        line += [] if spec["wait"] else [f"--immediate={max(IMMEDIATE, spec['seconds'] // 4)}"]
        if spec["mail"] == nodes[0] and key == "node":
            line += ["--mail-type=END", f"--mail-user={pwd.getpwuid(os.getuid()).pw_name}"]
        if key == "container" and spec["pyxis"]:
            return [*line, f"--container-image={self.image}", "cat", "/etc/os-release"]
        if key == "container":
            return [*line, "python3", "-c", (_HERE / "container.py").read_text(), self.image]
        request = {"run": spec["run"], "shared_home": spec["shared_home"], "smi_exit_codes": spec["smi_exit_codes"]}
        values = {name: job[name] for name in ("memory", "gpus", "one_gpu") if name in job}
        return [*line, "python3", "-c", (_HERE / "node.py").read_text(), key, json.dumps({**request, **values})]

    def execute(self, line: list[str], seconds: float) -> Ended:
        """Run a program. timeout(1) ends it with what it has started: srun cancels its job then."""
        command = ["timeout", f"--kill-after={GRACE}", str(seconds), *line]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.lock:
            if self.stop.is_set():
                return Ended(130, "stopped", "", "")
            start, environment = time.monotonic(), {**os.environ, "LC_ALL": "C.UTF-8"}
            process = subprocess.Popen(command, text=True, errors="replace", cwd="/", env=environment, **pipes)
            self.running.append(process)
        out, err = process.communicate()
        late = time.monotonic() - start >= seconds
        how = f"no end within {seconds:.0f} s" if late else f"exit code {process.returncode}"
        return Ended(124 if late else process.returncode, how, out, err)

    def cancel_all(self) -> None:
        self.stop.set()
        self.scancel()
        with self.lock:
            for process in self.running:
                process.terminate()

    def scancel(self) -> None:
        """Cancel the remaining jobs of this run: a killed srun leaves its job."""
        ask("scancel", f"--name={self.name}")


def answers(ended: Ended, nodes: list[str], tasks: int) -> tuple[str, str]:
    """Return whether all tasks of a job on these nodes answered, in words."""
    found = {(task["node"], task["task"]) for task in ended.tasks}
    where = f" on {len(nodes)} nodes" if len(nodes) > 1 else ""
    if others := {node for node, _ in found}.difference(nodes):
        return FAIL, f"answered as {', '.join(sorted(others))}"
    silent = [node for node in nodes if sum(name == node for name, _ in found) < tasks]
    if not silent and not ended.code:
        return PASS, f"{len(found)} task{'' if len(found) == 1 else 's'}{where}"
    names = f"; not all of {scontrol('hostlistsorted', ','.join(silent))}" if silent and where else ""
    return FAIL, f"{len(found)} of {len(nodes) * tasks} tasks{where} answered, {ended.how}{names}"


def jobs_on(node: str) -> str:
    """Return in words which jobs a node has; empty if the user may not see them."""
    words = ["--noheader", f"--nodelist={node}", "--states=RUNNING,COMPLETING,SUSPENDED", "--format=%A %T"]
    jobs = ask("squeue", *words).stdout.replace(" COMPLETING", " (completing)").replace(" RUNNING", "").splitlines()
    return f"busy with jobs {', '.join(jobs)}" if jobs else ""


def hostnames(nodes: str) -> list[str]:
    return scontrol("hostnames", nodes).split()


def scontrol(kind: str, nodes: str) -> str:
    done = ask("scontrol", "show", kind, nodes)
    done.check_returncode()
    return done.stdout.strip()


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def report(**row: object) -> None:
    with _print_lock:
        print(json.dumps(row), flush=True)


def main(text: str) -> None:
    driver = CheckRun(json.loads(text))

    def watch() -> None:
        while os.read(0, 4096):
            pass
        driver.cancel_all()
        shutil.rmtree(driver.folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        driver.work()
    except Exception as error:  # noqa: BLE001 - the caller must get the message of any error
        driver.cancel_all()
        report(check="driver", status=FAIL, text=f"{type(error).__name__}: {error}")
    report(done=True)


if __name__ == "__main__":
    main(sys.argv[1])
