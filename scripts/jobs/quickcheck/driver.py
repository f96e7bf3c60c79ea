"""Runs the checks of a cluster from its login machine, as a user. Standard library only.

    python3 driver.py SPEC      SPEC: JSON, as cluster/jobs/quickcheck.py writes it

It starts srun for each node in parallel, and prints an event, a line of JSON, for each that ends. With srun the output
of a job comes back over the network, so that a node without its file systems can be checked too; for the same reason
the programs are on srun's command line. When its standard input ends, it cancels what it has started, and ends.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

AT_ONCE = 64
"""Nodes that are checked in parallel: each needs an srun on the login machine."""
GRACE = 15
"""Seconds that srun has to end by itself after its job was cancelled."""
LONGEST = 65_536
"""Characters that are kept of the output of a job, but LONGEST_OF_TASK per task if that is more."""
LONGEST_OF_TASK = 512
DAY = 86_400
_PIPED: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
_HERE = Path(__file__).parent
_print_lock = threading.Lock()


class Driver:
    """A run of the checks."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.name = f"hpc-check-{spec['run']}"
        self.stop = threading.Event()
        self.running: set[subprocess.Popen[str]] = set()
        self.lock = threading.Lock()
        self.downloading: subprocess.Popen[str] | None = None
        self.good: dict[str, bool] = {}
        self.folder = Path(pwd.getpwuid(os.getuid()).pw_dir) / f".hpc-check-{spec['run']}"

    def work(self) -> None:
        """Run the jobs on single nodes, one after the other on each node; then those on several nodes."""
        try:
            self.remove_leftovers()
            self.folder.mkdir(mode=0o700)
            (self.folder / "login").write_text(f"{self.spec['run']}\n")
            self.image = self._image()
            by_node: dict[str, list[tuple[dict[str, Any], str]]] = {}
            for job in self.spec["jobs"]:
                for node in expand(job["nodes"]) if job["each"] else ():
                    by_node.setdefault(node, []).append((job, node))
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(self._node, by_node.values()))
                together = [job for job in self.spec["jobs"] if not job["each"]]
                list(pool.map(self._together, together))
            if not self.stop.is_set():
                self._after()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.scancel()
        event("done")

    def remove_leftovers(self) -> None:
        """Remove folders of killed runs: those that are older than a day, which no run takes."""
        for old in self.folder.parent.glob(".hpc-check-*"):
            if time.time() - old.lstat().st_mtime > DAY:
                shutil.rmtree(old, ignore_errors=True)

    def _node(self, jobs: list[tuple[dict[str, Any], str]]) -> None:
        for job, node in jobs:
            code = self._run(job, [node])
            if job["key"] == "node":
                self.good[node] = code == 0
                if code:
                    break  # the other jobs would fail for the same reason

    def _together(self, job: dict[str, Any]) -> None:
        """Run a job on all nodes whose own job succeeded, since it would fail on the others."""
        nodes = [node for node in expand(job["nodes"]) if self.good.get(node)]
        if len(nodes) > 1:
            self._run(job, nodes)

    def _run(self, job: dict[str, Any], nodes: list[str]) -> int:
        """Run srun once; return its exit code, 124 if it took too long."""
        if self.stop.is_set():
            return 130
        line = self.line(job, nodes)
        began, late = time.monotonic(), False
        with self.lock:
            environment = {**os.environ, "LC_ALL": "C.UTF-8"}
            process = subprocess.Popen(line, stdout=subprocess.PIPE, env=environment, cwd="/", **_PIPED)
            self.running.add(process)
        try:
            out, err = process.communicate(timeout=job["seconds"])
        except subprocess.TimeoutExpired:
            late = True
            process.terminate()  # srun cancels its job
            try:
                out, err = process.communicate(timeout=GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
        with self.lock:
            self.running.discard(process)
        code = 124 if late else process.returncode
        most = max(LONGEST, LONGEST_OF_TASK * len(nodes) * job["tasks"])
        if not self.stop.is_set():
            result = {"code": code, "late": late, "seconds": round(time.monotonic() - began, 2)}
            printed = {"out": out[-most:], "err": err[-most:]}
            event("end", key=job["key"], partition=job["partition"], nodes=nodes, **result, **printed)
        return code

    def line(self, job: dict[str, Any], nodes: list[str]) -> list[str]:
        """Return the command line of srun for a job."""
        line = ["srun", "--chdir=/", "--kill-on-bad-exit=0", f"--job-name={self.name}", f"--comment={job['key']}"]
        line += [f"--time={job['minutes']}", f"--partition={job['partition']}", f"--nodelist={','.join(nodes)}"]
        line += [f"--nodes={len(nodes)}", f"--ntasks={len(nodes) * job['tasks']}", *job["options"]]
        if self.spec["mail"] == nodes[0] and job["key"] == "node":
            line += ["--mail-type=END", f"--mail-user={pwd.getpwuid(os.getuid()).pw_name}"]
        if not self.spec["wait"]:
            line.append(f"--immediate={self.spec['immediate']}")
        if job["key"] == "container" and self.spec["pyxis"]:
            return [*line, f"--container-image={self.image}", "cat", "/etc/os-release"]
        # Without pyxis, which adds an option to srun, container.py starts the container.
        container = ["container.py", self.spec["run"], self.image] if job["key"] == "container" else None
        program, *arguments = container or job["program"]
        return [*line, "python3", "-c", (_HERE / program).read_text(), *arguments]

    def _image(self) -> str:
        """Return the image, downloaded once to a shared home by the login machine if it can.

        Downloads by all nodes of a large cluster would exceed the limits of a registry.
        """
        name = self.spec["image"]
        wanted = any(job["key"] == "container" for job in self.spec["jobs"])
        if not name or name.startswith("/") or not wanted or not self.spec["shared_home"]:
            return name
        for program, suffix, words in (("enroot", "sqsh", ["import", "--output"]), ("apptainer", "sif", ["pull"])):
            if shutil.which(program):
                place = self.folder / f"image.{suffix}"
                event("note", text=f"{program}: downloading {name} on the login machine")
                # Only enroot has a # between registry and image.
                source = name if program == "enroot" else name.replace("#", "/", 1)
                error = self._download([program, *words, str(place), f"docker://{source}"])
                if error is None:
                    return str(place)
                event("note", text=f"{program}: {error.strip()[-500:]}")
        return name

    def _download(self, line: list[str]) -> str | None:
        """Run a program that starts others; return why it failed, or None."""
        with self.lock:
            if self.stop.is_set():
                return "stopped"
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True, **_PIPED)
            self.downloading = process
        try:
            err = process.communicate(timeout=self.spec["image_seconds"])[1]
        except subprocess.TimeoutExpired:
            kill_group(process)
            process.communicate()
            return f"no end within {self.spec['image_seconds']} s"
        finally:
            self.downloading = None
        return (err or f"exit code {process.returncode}") if process.returncode else None

    def _after(self) -> None:
        """Report the files that nodes wrote to the home, and the records of accounting."""
        files: dict[str, Any] = {}
        for path in self.folder.glob("node-*"):
            try:
                files[path.name[5:]] = {"own": path.stat().st_uid == os.getuid(), "text": path.read_text()[:200]}
            except OSError as error:
                files[path.name[5:]] = {"error": str(error)}
        event("home", files=files)
        fields = "JobID,User,Account,QOS,State,NodeList"
        end, text = time.monotonic() + self.spec["accounting_seconds"], ""
        while time.monotonic() < end and not self.stop.is_set():
            words = ["--allocations", "--noheader", "--parsable2", "--starttime=now-2hours", f"--format={fields}"]
            done = ask("sacct", f"--name={self.name}", *words)
            text = done.stdout if done.returncode == 0 else ""
            if done.returncode:
                event("accounting", text="", error=done.stderr.strip()[-2000:])
                return
            rows = [line.split("|") for line in text.splitlines()]
            ended = {row[5] for row in rows if len(row) == 6 and row[4] not in ("PENDING", "RUNNING")}
            # slurmctld sends new jobs to slurmdbd every five seconds.
            if ended.issuperset(node for node, good in self.good.items() if good):
                break
            time.sleep(0.5)
        event("accounting", text=text[-LONGEST * 16 :])

    def cancel_all(self) -> None:
        self.stop.set()
        with self.lock:
            if self.downloading:
                kill_group(self.downloading)
        self.scancel()
        with self.lock:
            for process in self.running:
                process.terminate()

    def scancel(self) -> None:
        """Cancel the remaining jobs of this run: a killed srun leaves its job."""
        ask("scancel", f"--name={self.name}")


def kill_group(process: subprocess.Popen[str]) -> None:
    """End a process that leads its process group, and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def expand(nodes: str) -> list[str]:
    done = ask("scontrol", "show", "hostnames", nodes)
    done.check_returncode()
    return done.stdout.split()


def event(kind: str, **more: object) -> None:
    with _print_lock:
        sys.stdout.write(json.dumps({"event": kind, **more}) + "\n")
        sys.stdout.flush()


def main(text: str) -> int:
    driver = Driver(json.loads(text))

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
        event("failed", text=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
