"""Charts in registries, repositories and folders: versions, values, and definitions on a real API server."""

import hashlib
import http.server
import io
import json
import re
import tarfile

import pytest

from cluster.platforms.nebius.kubectl import kubeconfig
from cluster.platforms.nebius.releases import Release
from components.nebius import chart_sources
from components.nebius.chart_sources import DefinitionsProvider
from components.nebius.kubectl import KubectlError
from lab import nebius_rehearsal
from tests import programs
from tests.nebius.kube.conftest import namespace, project

INDEX = """apiVersion: v1
entries:
  other:
  - version: 9.9.9
  k8up:
  - apiVersion: v2
    dependencies:
    - name: x
      version: 1.0.0
    name: k8up
    urls:
    - archives/k8up-4.8.7.tgz
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
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
MANIFEST = json.dumps(
    {
        "layers": [
            {
                "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                "digest": f"sha256:{SHA256}",
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
                base = f"http://{self.headers['Host']}"
                text, code = "", 404
                if self.path.startswith("/token"):
                    text, code = json.dumps({"token": "anonymous"}), 200
                elif self.path == "/store/chart":
                    # As object stores do: a token of the registry is none of theirs.
                    text, code = ARCHIVE, 400 if self.headers.get("Authorization") else 200
                elif self.path == "/charts/archives/k8up-4.8.7.tgz":
                    text, code = ARCHIVE, 200
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

        real = chart_sources._open
        monkeypatch.setattr(chart_sources, "_open", lambda url, *more: real(url.replace("https://", "http://"), *more))
        with programs.served(Handler) as port:
            yield f"127.0.0.1:{port}"

    def test_versions_in_a_registry(self, registry):
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

    def test_versions_in_a_repository(self, registry):
        repo = f"http://{registry}/charts"
        assert chart_sources.check_exists(repo, "k8up", "4.8.6") == ""
        with pytest.raises(chart_sources.ChartError, match=r"k8up 4.9.0 is not in .* It has: 4.8.7, 4.8.6"):
            chart_sources.check_exists(repo, "k8up", "4.9.0")
        with pytest.raises(chart_sources.ChartError, match="none that it lists"):
            chart_sources.check_exists(repo, "absent", "1.0.0")

    def test_an_archive_with_another_hash_is_refused_before_anything_else(self, registry):
        def check(sha256, values, before=None):
            repo = f"http://{registry}/charts"
            release = Release(
                name="k8up", chart="k8up", repo=repo, version="4.8.7", sha256=sha256, namespace="n", values=values
            )
            rows = {"charts": chart_sources.charts_of([release])}
            chart_sources.ChartVersionsProvider().act(rows, before)
            return rows

        before = check(SHA256, {"a": 1})
        with pytest.raises(chart_sources.ChartError) as error:
            check("0" * 64, {"a": 1})
        assert str(error.value).splitlines() == [
            f"k8up 4.8.7 of http://{registry}/charts is not the chart that this program was made with",
            f"  given: an archive with the SHA-256 {SHA256}", f"  allowed: {'0' * 64}",
            "  to do: set nebius.soperator.charts to a folder with charts that you have checked",
        ]  # fmt: skip
        # Helm downloads it again when its values change.
        assert check(SHA256, {"a": 1}, before) == before
        assert check(SHA256, {"a": 2}, before) != before
        with pytest.raises(chart_sources.ChartError, match="SHA-256 of none"):
            chart_sources.check_exists(f"http://{registry}/charts", "k8up", "4.8.6", SHA256)

    @pytest.mark.parametrize("where", ["registry", "folder"])
    def test_values_that_a_chart_does_not_have_are_refused(self, registry, tmp_path, capfd, where):
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

    def test_a_registry_that_does_not_answer_is_reported(self):
        assert "does not answer" in chart_sources.check_exists("oci://127.0.0.1:1/soperator", "helm-soperator", "4.1.7")

    def test_charts_in_a_folder(self, tmp_path):
        (tmp_path / "k8up").mkdir()
        (tmp_path / "k8up" / "Chart.yaml").touch()
        assert chart_sources.check_exists(str(tmp_path), "k8up", "4.8.7") == ""
        with pytest.raises(chart_sources.ChartError, match="there is no chart in the folder"):
            chart_sources.check_exists(str(tmp_path), "absent", "1")


__all__ = ["namespace", "project"]

LARGE = """
k.helm.v3.Release("large", name="large", chart="charts/%s", namespace=%r, skip_await=True, opts=options)
"""


def chart(folder, folder_inside, **files):
    place = folder / folder_inside
    place.mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: helm-soperator\nversion: 1.0.0\n")
    for name, text in files.items():
        (place / f"{name}.yaml").write_text(text)


@pytest.fixture
def props(kube, tmp_path):
    access = {
        "server": kube.access.server, "certificate_authority": kube.access.certificate_authority, "context": "test",
        "namespace": "default", "command": ["cat", str(tmp_path / "credential.json")],
    }  # fmt: skip
    exec_api = re.search(r"client\.authentication\.k8s\.io/\w+", kubeconfig("", "", ["cat"], "test", "default"))
    assert exec_api is not None
    credential = {"apiVersion": exec_api[0], "kind": "ExecCredential", "status": {"token": kube.access.token}}
    (tmp_path / "credential.json").write_text(json.dumps(credential))
    return {"chart": {"repo": str(tmp_path), "chart": "helm-soperator", "version": "4.1.7"}, "access": access}


@pytest.mark.slow
def test_another_version_has_its_own_definitions_before_its_chart(kube, props, tmp_path):
    chart(tmp_path / "helm-soperator", "crds", rack=nebius_rehearsal.definition("rack", "before"))
    DefinitionsProvider().create(props)
    assert served(kube, "rack") == ["before"]
    file = tmp_path / "helm-soperator" / "crds" / "rack.yaml"
    file.write_text(nebius_rehearsal.definition("rack", "before", "after"))
    newer = {**props, "chart": {**props["chart"], "version": "4.1.8"}}
    assert DefinitionsProvider().diff("", props, newer).changes
    assert not DefinitionsProvider().diff("", props, dict(props)).changes
    DefinitionsProvider().update("", props, newer)
    assert served(kube, "rack") == ["after", "before"]


@pytest.mark.slow
def test_definitions_of_soperators_size_fit_into_a_release_in_crds_alone(kube, namespace, project, props, tmp_path):
    nebius_rehearsal.write_charts(tmp_path / "charts", "4.1.7")
    soperator = tmp_path / "charts" / "helm-soperator"
    every = {file.stem: file.read_text() for file in (soperator / "crds").glob("ballast*.yaml")}
    chart(project.root / "charts" / "templates", "templates", **every)
    assert not project.up(LARGE % ("templates", namespace)).ok
    assert "Too long" in " ".join(project.failures())
    DefinitionsProvider().create({**props, "chart": {**props["chart"], "repo": str(tmp_path / "charts")}})
    assert served(kube, "ballast0")[0] == "pad0"
    (project.root / "charts" / "crds").symlink_to(soperator)
    assert project.up(LARGE % ("crds", namespace)).ok, project.failures()
    record = kube.get("secret", "sh.helm.release.v1.large.v1", f"--namespace={namespace}")["data"]["release"]
    # 952 KB of the real one.
    assert 930_000 < len(record) * 3 // 4 < 1 << 20


@pytest.mark.slow
def test_active_checks_of_a_rehearsal_are_in_the_namespace_that_real_ones_name(kube, namespace, project, tmp_path):
    none = (LARGE % ("checks", namespace)).replace("skip_await", 'values={"checks": None}, skip_await')
    checks = project.root / "charts" / "checks"
    checks.symlink_to(tmp_path / "charts" / "helm-soperator-activechecks")
    nebius_rehearsal.write_charts(tmp_path / "charts", "4.1.7")
    kube.kubectl("delete", "namespace", "soperator", "--ignore-not-found")  # of another test on this server
    assert not project.up(none).ok
    assert 'namespaces "soperator" not found' in " ".join(project.failures())
    nebius_rehearsal.write_charts(tmp_path / "charts", "5.0.0")
    assert project.up(none).ok, project.failures()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chart_", "values"),
    [
        ("helm-slurm-cluster", {"slurmNodes": {"worker": {"size": 2}}}),
        ("helm-slurm-cluster", {"periodicChecks": {}}),
        ("helm-slurm-cluster", {"partitionConfiguration": {"rawConfig": ["NodeName=a"]}}),
        ("helm-nodesets", {"nodesets": [{"name": "gpu", "replicas": 1, "size": 1}]}),
    ],
)
def test_keys_that_a_rehearsals_chart_does_not_have_are_refused(kube, chart_, values):
    place = [f"--kubeconfig={kube.access.kubeconfig}", "--namespace=refused", "--create-namespace", "--values=-"]
    done = programs.run(
        [kube.paths.helm, "install", "refused", nebius_rehearsal.STAND_INS / chart_, *place],
        input=json.dumps({"clusterName": "refused", **values}),
    )
    assert done.returncode == 1
    assert "don't meet the specifications of the schema" in done.stderr


@pytest.mark.slow
def test_a_refusal_of_the_api_server_is_kubectls_own_text(props, tmp_path):
    chart(tmp_path / "helm-soperator", "crds", rack="apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n")
    with pytest.raises(KubectlError, match="Nonsense"):
        DefinitionsProvider().create(props)


def served(kube, name):
    crd = kube.get("crd", f"{name}s.rehearsal.hpc")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return sorted(schema["properties"]["spec"]["properties"])
