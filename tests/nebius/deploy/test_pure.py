"""Rules of the waits and of the drain, without a cluster."""

import hashlib
import http.server
import io
import json
import tarfile
import threading

import pytest

from cluster.observe.nodes import parse_nodes
from cluster.platforms.nebius.releases import Release
from components.nebius import chart_sources, waits
from components.nebius.drain import leaving
from components.nebius.kubectl import KubectlError
from components.nebius.waits import LEAVES, REMADE, Awaited, Look, WaitError, wait_for


def kube_node(name, group="g", ready=True, gpus=0):
    return {
        "metadata": {"name": name, "labels": {waits.NODE_GROUP_LABEL: group}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "reason": "KubeletNotReady"}],
            "allocatable": {waits.GPU: str(gpus)} if gpus else {},
        },
    }


class TestNodes:
    GROUP = {"name": "worker-gpu-0", "id": "g", "count": 2, "gpus": 8}  # noqa: RUF012

    def test_all_are_there(self):
        assert waits.nodes_state([self.GROUP], [kube_node("a", gpus=8), kube_node("b", gpus=8)]).done

    def test_one_is_not_ready(self):
        found = waits.nodes_state([self.GROUP], [kube_node("a", gpus=8), kube_node("b", ready=False)])
        assert not found.done
        assert found.text == "worker-gpu-0: 1 of 2 nodes are Ready (b: KubeletNotReady: )"

    def test_one_has_too_few_gpus(self):
        found = waits.nodes_state([self.GROUP], [kube_node("a", gpus=8), kube_node("b", gpus=7)])
        assert "1 nodes do not advertise 8 nvidia.com/gpu: b has 7" in found.text

    def test_nodes_of_other_groups_do_not_count(self):
        assert not waits.nodes_state([self.GROUP], [kube_node("a", group="other", gpus=8)] * 2).done


class TestNodeSets:
    @pytest.mark.parametrize(
        ("has", "asked", "text"),
        [(2, 2, ""), (1, 2, "gpu has 1 of 2 pods"), (2, 3, "gpu has 2 of 2 pods"), (None, 0, "gpu is not there")],
    )
    def test_each_has_as_many_as_it_should(self, has, asked, text):
        found = [{"metadata": {"name": "gpu"}, "status": {"replicas": has}, "spec": {"replicas": asked}}]
        look = waits.nodesets_state({"gpu": 2}, [] if has is None else found)
        assert (look.done, look.text) == (not text, text)


class TestScheduler:
    WANTED = {"gpu-0": 8, "gpu-1": 8}  # noqa: RUF012
    GRES = {"gpu-0": "gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", "gpu-1": "gpu:h100:8"}  # noqa: RUF012

    def look(self, *states, gres=None):
        text = "\n".join(f"NodeName=gpu-{index} State={state}" for index, state in enumerate(states))
        return waits.scheduler_state(self.WANTED, parse_nodes(text), gres or self.GRES)

    @pytest.mark.parametrize("state", ["IDLE", "MIXED+DYNAMIC_NORM", "ALLOCATED"])
    def test_nodes_that_take_jobs(self, state):
        assert self.look("IDLE+DYNAMIC_NORM", state).done

    def test_a_drained_node_counts_with_a_warning(self):
        text = "IDLE+DRAIN Reason=[node_problem] NCCL [root@2026-01-01T00:00:00]"
        found = self.look("IDLE", text)
        assert found.done
        assert "gpu-1 is drained: [node_problem] NCCL (root)" in found.facts["drained"][0]

    @pytest.mark.parametrize("state", ["DOWN", "IDLE*", "DOWN+DRAIN"])
    def test_nodes_that_do_not(self, state):
        assert not self.look("IDLE", state).done

    def test_nodes_that_are_missing_or_have_other_gpus(self):
        assert "gpu-1 has not registered" in self.look("IDLE").text
        assert (
            "gpu-1 has 7 GPUs in Slurm, not 8" in self.look("IDLE", "IDLE", gres={**self.GRES, "gpu-1": "gpu:7"}).text
        )


class TestDrain:
    OLD = {"gpu": {"count": 3, "shape": "a"}, "cpu": {"count": 1, "shape": "a"}}  # noqa: RUF012

    def test_nothing_leaves_when_nodes_are_added(self):
        assert leaving(self.OLD, {**self.OLD, "gpu": {"count": 5, "shape": "a"}}) == {}

    def test_the_last_ones_leave(self):
        assert leaving(self.OLD, {**self.OLD, "gpu": {"count": 1, "shape": "a"}}) == {"gpu-1": LEAVES, "gpu-2": LEAVES}

    def test_all_of_a_nodeset_that_is_gone(self):
        assert leaving(self.OLD, {"gpu": self.OLD["gpu"]}) == {"cpu-0": LEAVES}

    def test_all_that_are_recreated(self):
        found = leaving(self.OLD, {**self.OLD, "gpu": {"count": 2, "shape": "b"}})
        assert found == {"gpu-0": REMADE, "gpu-1": REMADE, "gpu-2": LEAVES}

    def test_numbers_come_back_from_the_state_as_fractions(self):
        olds = {"gpu": {"count": 2.0, "shape": "a"}}
        assert leaving(olds, {"gpu": {"count": 1, "shape": "a"}}) == {"gpu-1": LEAVES}


class TestWait:
    def test_it_ends_with_what_was_missing_and_what_to_do(self):
        awaited = Awaited("a thing", lambda: Look("half of it"), "look", lambda: "  an event", "nebius.timeouts.login")
        with pytest.raises(WaitError) as error:
            wait_for(awaited, seconds=0.02, pace=0.01)
        assert str(error.value).splitlines() == [
            "a thing did not come within 0 s (nebius.timeouts.login): half of it", "  an event", "to do: look",
        ]  # fmt: skip

    def test_it_does_not_wait_for_what_can_not_come(self):
        def look():
            raise KubectlError("`kubectl get` failed: getting credentials: exec: executable nebius not found")

        with pytest.raises(WaitError, match=r"nebius.token_command"):
            wait_for(Awaited("a thing", look), seconds=60, pace=10)
        with pytest.raises(WaitError, match="a thing failed: BackoffLimitExceeded"):
            wait_for(Awaited("a thing", lambda: Look("BackoffLimitExceeded", failed=True)), seconds=60, pace=10)

    def test_an_api_server_that_does_not_answer_is_asked_again(self):
        answers = iter([KubectlError("connection refused"), Look(done=True, facts={"a": 1})])

        def look():
            found = next(answers)
            if isinstance(found, Exception):
                raise found
            return found

        assert wait_for(Awaited("a thing", look), seconds=5, pace=0.01) == {"a": 1}


INDEX = """apiVersion: v1
entries:
  other:
  - version: 9.9.9
  k8up:
  - apiVersion: v2
    dependencies:
    - name: x
      version: 1.0.0
    version: 4.8.7
  - version: "4.8.6"
  zebra:
  - version: 0.1.0
generated: now
"""


VALUES = b"manager: {replicas: 1, labels: {}}\n"


def _archive() -> bytes:
    """A chart's archive: definitions, and what is none."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        files = {"crds/b.yaml": b"b: 2", "crds/a.yaml": b"a: 1", "templates/crds/x.yaml": b"x", "values.yaml": VALUES}
        for name, text in files.items():
            member = tarfile.TarInfo(f"helm-soperator/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return packed.getvalue()


ARCHIVE = _archive()
MANIFEST = json.dumps(
    {
        "layers": [
            {
                "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                "digest": f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}",
            }
        ]
    }
)


class TestVersions:
    @pytest.fixture
    def registry(self, monkeypatch):
        """A registry that wants an anonymous token, and a repository."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                base = f"http://{place}"
                text, code = "", 404
                if self.path.startswith("/token"):
                    text, code = json.dumps({"token": "anonymous"}), 200
                elif self.path == "/store/chart":
                    # As object stores do: a token of the registry is none of theirs.
                    text, code = ARCHIVE, 400 if self.headers.get("Authorization") else 200
                elif self.path == "/charts/index.yaml":
                    text, code = INDEX, 200
                elif self.headers.get("Authorization") != "Bearer anonymous":
                    code = 401
                elif self.path.endswith("/manifests/4.1.7"):
                    text, code = MANIFEST, 200
                elif "/blobs/" in self.path:
                    code = 307
                elif self.path.endswith("/tags/list"):
                    text, code = json.dumps({"tags": ["4.1.7", "4.1.6"]}), 200
                self.send_response(code)
                self.send_header("WWW-Authenticate", f'Bearer realm="{base}/token",service="s",scope="x"')
                if code == 307:
                    self.send_header("Location", f"{base}/store/chart")
                self.end_headers()
                self.wfile.write(text if isinstance(text, bytes) else text.encode())

            def log_message(self, format, *args):  # noqa: A002 - the base class's name
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        real = chart_sources._open
        monkeypatch.setattr(chart_sources, "_open", lambda url, *more: real(url.replace("https://", "http://"), *more))
        yield place
        server.shutdown()
        server.server_close()

    def test_in_a_registry(self, registry):
        repo = f"oci://{registry}/soperator"
        assert chart_sources.check_exists(repo, "helm-soperator", "4.1.7") == ""
        with pytest.raises(chart_sources.ChartError, match=r"helm-soperator 4.9.9 is not in .* It has: 4.1.7, 4.1.6"):
            chart_sources.check_exists(repo, "helm-soperator", "4.9.9")

    def test_definitions_in_a_registry(self, registry):
        repo = f"oci://{registry}/soperator"
        assert chart_sources.definitions(repo, "helm-soperator", "4.1.7") == "a: 1\n---\nb: 2"
        with pytest.raises(chart_sources.ChartError, match=r"helm-soperator 4.9.9 can't be read from"):
            chart_sources.definitions(repo, "helm-soperator", "4.9.9")

    def test_definitions_in_a_folder(self, tmp_path):
        (tmp_path / "helm-soperator" / "crds").mkdir(parents=True)
        with pytest.raises(chart_sources.ChartError, match="no definitions in crds/"):
            chart_sources.definitions(str(tmp_path), "helm-soperator", "4.1.7")
        (tmp_path / "helm-soperator" / "crds" / "one.yaml").write_text("a: 1")
        assert chart_sources.definitions(str(tmp_path), "helm-soperator", "4.1.7") == "a: 1"

    def test_in_a_repository(self, registry):
        repo = f"http://{registry}/charts"
        assert chart_sources.check_exists(repo, "k8up", "4.8.6") == ""
        with pytest.raises(chart_sources.ChartError, match=r"k8up 4.9.0 is not in .* It has: 4.8.7, 4.8.6"):
            chart_sources.check_exists(repo, "k8up", "4.9.0")
        with pytest.raises(chart_sources.ChartError, match="none that it lists"):
            chart_sources.check_exists(repo, "absent", "1.0.0")

    @pytest.mark.parametrize("where", ["registry", "folder"])
    def test_values_that_the_chart_does_not_have(self, registry, tmp_path, capfd, where):
        (tmp_path / "helm-soperator").mkdir()
        for name, text in (("Chart.yaml", b""), ("values.yaml", VALUES)):
            (tmp_path / "helm-soperator" / name).write_bytes(text)
        repo = f"oci://{registry}/soperator" if where == "registry" else str(tmp_path)
        release = Release(name="soperator", chart="helm-soperator", repo=repo, version="4.1.7", namespace="n")

        def check(**values):
            rows = chart_sources.charts_of([release], {"soperator": values})
            chart_sources.ChartVersionsProvider().create({"charts": rows})
            return rows

        assert "s3cret" not in str(check(manager={"replicas": "s3cret", "labels": {"any": 1}}))
        with pytest.raises(chart_sources.ChartError) as error:
            check(manager={"replica": 2}, mangaer=1)
        assert str(error.value).splitlines() == [
            "nebius.values.soperator.manager.replica: the chart's values.yaml has no such key",
            "  allowed: replicas, labels", "  to do: write replicas",
            "nebius.values.soperator.mangaer: the chart's values.yaml has no such key",
            "  allowed: manager", "  to do: write manager",
        ]  # fmt: skip
        check(quite={"another": 1})
        assert "nebius.values.soperator.quite: the chart's values.yaml has no such key" in "".join(capfd.readouterr())

    def test_a_registry_that_does_not_answer_proves_nothing(self):
        assert "does not answer" in chart_sources.check_exists("oci://127.0.0.1:1/soperator", "helm-soperator", "4.1.7")

    def test_in_a_folder(self, tmp_path):
        (tmp_path / "k8up").mkdir()
        (tmp_path / "k8up" / "Chart.yaml").touch()
        assert chart_sources.check_exists(str(tmp_path), "k8up", "4.8.7") == ""
        with pytest.raises(chart_sources.ChartError, match="there is no chart in the folder"):
            chart_sources.check_exists(str(tmp_path), "absent", "1")
