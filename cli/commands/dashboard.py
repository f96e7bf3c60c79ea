"""`./hpc dashboard`."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, connect
from cli.errors import CliError
from cluster.capability import Capability

_SECONDS = 60
"""Time limit for reading the records of one job."""
_NODE = re.compile(r"[A-Za-z0-9._-]+")


def dashboard(
    stack: options.Stack,
    *,
    port: Annotated[int, Option(min=0, max=65535, metavar="PORT", help="Port of the page. Default: a free one.")] = 0,
    job: Annotated[str, Option(metavar="ID", help="Begin with this job: its nodes, over its life.")] = "",
    grafana: Annotated[
        Path | None, Option(metavar="FOLDER", help="Write the dashboards for Grafana, whose folder is /etc/grafana.")
    ] = None,
) -> None:
    """Show the cluster's metrics in a browser: nodes, jobs, GPUs, users, file systems, health, repairs.

    The page is served on this machine's loopback address, to whoever has the address that is printed, and asks
    Prometheus on its machine through SSH, or VictoriaMetrics in Kubernetes through kubectl. Ctrl-C ends both. The
    stack has to have `monitoring`.

    With --grafana the same dashboards are written as JSON, beside what has Grafana read them and Prometheus, and
    nothing is served. Where Grafana is not on that machine too, it reaches Prometheus by a tunnel or an address that
    you write into the data source.
    """
    cluster = connect(stack, Capability.SSH)
    from cli.stack import stack_config

    config = stack_config.applied(cluster.outputs)
    if config is None or config.monitoring is None:
        raise CliError(
            f"stack {stack} has no section `monitoring`, so nothing collects its metrics. Add `monitoring: {{}}` to "
            f"its stack file, and run: ./hpc preview {stack}"
        )
    from cluster.platforms.dashboards import dashboards_of

    dashboards = dashboards_of(config)
    if grafana:
        _write_for_grafana(cluster.name, config.monitoring.interval_seconds, dashboards, grafana)
    else:
        from cluster.monitoring.dashboards import page

        html = page(cluster.name, stack, config.monitoring.interval_seconds, dashboards)
        _serve(cluster, html, stack, port, job)


def _write_for_grafana(cluster: str, interval: int, dashboards: Sequence[Any], folder: Path) -> None:
    import yaml

    from cluster.monitoring.dashboards import grafana_files
    from scripts.hostfiles import write_atomically

    for name, content in grafana_files(cluster, interval, dashboards).items():
        text = yaml.safe_dump(content, sort_keys=False) if name.endswith(".yaml") else json.dumps(content, indent=2)
        write_atomically(folder / name, text.rstrip("\n") + "\n")
        console.line(str(folder / name))
    console.note(f"Copy what is in {folder} to /etc/grafana of the machine that runs Grafana, and restart Grafana.")


def _serve(cluster: Cluster, html: Any, stack: str, port: int, job: str) -> None:  # noqa: ANN401 - of a later import
    """Serve the page (cluster.monitoring.dashboards) until Ctrl-C."""
    from cli.cluster.dashboard import DashboardServer, Prometheus
    from cli.interrupts import exit_on_termination

    prometheus = Prometheus(cluster)
    with (
        DashboardServer(
            port, html, prometheus, lambda number: _job_document(stack, cluster, prometheus, number)
        ) as server,
        exit_on_termination(),
    ):
        try:
            try:
                prometheus.ask("-/ready")
            except CliError as error:
                console.note(f"{error}. The page asks again until it does.")
                console.note(f"What still works: ./hpc status {stack}, ./hpc nodes {stack}, ./hpc job {stack} ID")
            console.line(server.url + (f"#job={job}" if job else ""))
            console.note("Whoever has this address can read the metrics. Ctrl-C ends it.")
            server.serve_forever()
        except KeyboardInterrupt:
            console.note("Ended.")
        finally:
            prometheus.close()


def _job_document(stack: str, cluster: Cluster, prometheus: Any, number: str) -> Mapping[str, Any]:  # noqa: ANN401
    """Return a job as the page shows it. Raises CliError: there is no such job, or it has not run."""
    from cli.cluster.scheduler import Scheduler
    from scripts.node.slurm.hostlist import expand
    from scripts.node.slurm.job_report import JobError, report

    scheduler = Scheduler(cluster)
    try:
        jobs = report(number, lambda script: scheduler.run(script, seconds=_SECONDS))["jobs"]
    except JobError as error:
        raise CliError(f"{error}.") from None
    if len(jobs) != 1:
        raise CliError(f"{number} is an array of jobs: name one of its tasks, such as {number}_1.")
    job = jobs[0]
    if not job["started"] or not job["nodes"]:
        raise CliError(f"job {number} is {job['state']} and has not run: ./hpc job {stack} {number} says why.")
    nodes = [name for name in expand(job["nodes"]) if _NODE.fullmatch(name)]
    keys = ("id", "number", "name", "user", "state", "started", "ended")
    return {"nodes": nodes, "hosts": _hosts(prometheus, set(nodes)), **{key: job[key] for key in keys}}


def _hosts(prometheus: Any, nodes: Collection[str]) -> list[str]:  # noqa: ANN401
    """Return the machines that run nodes which are pods: metrics have the machines' names."""
    try:
        response = json.loads(prometheus.ask("api/v1/query?query=slurm_node_info").body)
    except (CliError, ValueError):
        return []  # the page shows that there are no metrics
    rows = [row["metric"] for row in response.get("data", {}).get("result", ())]
    hosts = [row.get("instance_id", "") for row in rows if row.get("node_name") in nodes]
    return [name for name in hosts if _NODE.fullmatch(name)]
