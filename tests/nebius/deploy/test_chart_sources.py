"""Charts in registries, repositories and folders: versions, values, and definitions."""

import hashlib
import http.server
import io
import json
import tarfile
from contextlib import nullcontext

import pytest

from cluster.platforms.nebius.releases import ChartRelease, charts_of
from components.nebius import chart_sources
from components.nebius.chart_sources import DefinitionsProvider
from components.nebius.kubectl import KubectlError
from tests import programs
from tests.nebius.deploy.kubectl_stand_in import Cluster

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
MANIFEST_SHA256 = hashlib.sha256(MANIFEST.encode()).hexdigest()


class TestVersions:
    @pytest.fixture
    def registry(self, monkeypatch):
        """A registry that wants an anonymous token, and a repository."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                base = f"http://{self.headers['Host']}"
                text, code, digest = "", 404, ""
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
                    digest = f"sha256:{MANIFEST_SHA256}"
                elif "/blobs/" in self.path:
                    code = 307
                elif self.path.endswith("/tags/list"):
                    text, code = json.dumps({"tags": ["4.1.7", "4.1.6"]}), 200
                self.send_response(code)
                self.send_header("WWW-Authenticate", f'Bearer realm="{base}/token",service="s",scope="x"')
                if digest:
                    self.send_header("Docker-Content-Digest", digest)
                if code == 307:
                    self.send_header("Location", f"{base}/store/chart")
                self.end_headers()
                if self.command == "HEAD":
                    return
                self.wfile.write(text if isinstance(text, bytes) else text.encode())

        real = chart_sources.fetch
        monkeypatch.setattr(chart_sources, "fetch", lambda url, *more: real(url.replace("https://", "http://"), *more))
        with programs.served(Handler) as port:
            yield f"127.0.0.1:{port}"

    def test_versions_in_a_registry(self, registry):
        repo = f"oci://{registry}/soperator"
        assert chart_sources.check_exists(repo, "helm-soperator", "4.1.7") == f"sha256:{MANIFEST_SHA256}"
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
            release = ChartRelease(
                name="k8up", chart="k8up", repo=repo, version="4.8.7", sha256=sha256, namespace="n", values=values
            )
            rows = {"charts": charts_of([release])}
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
        release = ChartRelease(name="soperator", chart="helm-soperator", repo=repo, version="4.1.7", namespace="n")

        def check(**values):
            rows = charts_of([release], {"soperator": values})
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
        row = {"repo": "oci://127.0.0.1:1/soperator", "chart": "helm-soperator", "version": "4.1.7"}
        errors, [line], digest = chart_sources.check_artifact(row)
        assert (errors, digest) == ([], "")
        assert line.startswith("not checked: 127.0.0.1:1 does not answer: ")

    def test_charts_in_a_folder(self, tmp_path):
        (tmp_path / "k8up").mkdir()
        (tmp_path / "k8up" / "Chart.yaml").touch()
        assert chart_sources.check_exists(str(tmp_path), "k8up", "4.8.7") == ""
        with pytest.raises(chart_sources.ChartError, match="there is no chart in the folder"):
            chart_sources.check_exists(str(tmp_path), "absent", "1")


class TestDefinitions:
    """What kubectl is asked; a real API server takes the real ones in the outside check `soperator`."""

    PROPS = {"chart": {"chart": "helm-soperator", "version": "4.1.7"}, "access": {}}  # noqa: RUF012

    @pytest.fixture
    def cluster(self, tmp_path, monkeypatch):
        (tmp_path / "helm-soperator" / "crds").mkdir(parents=True)
        (tmp_path / "helm-soperator" / "crds" / "one.yaml").write_text("kind: One")
        monkeypatch.setitem(self.PROPS["chart"], "repo", str(tmp_path))
        found = Cluster()
        monkeypatch.setattr(chart_sources, "Kubectl", lambda _access: nullcontext(found))
        return found

    def test_they_are_applied_by_the_server_and_waited_for_by_name(self, cluster):
        """A client-side apply would annotate each with itself, which is too long for those of Soperator."""
        names = ["customresourcedefinition.apiextensions.k8s.io/ones.x"]
        cluster.answers["apply"] = lambda words: "\n".join(names) if "--server-side" in words else ""
        DefinitionsProvider().create(self.PROPS)
        applied, waited = cluster.ran
        assert {"--force-conflicts", "--field-manager=hpc", "--filename=-"} <= {*applied}
        assert "--for=condition=Established" in waited
        assert [*waited][-1:] == names

    def test_another_version_has_its_own(self, cluster):
        newer = {**self.PROPS, "chart": {**self.PROPS["chart"], "version": "4.1.8"}}
        assert DefinitionsProvider().diff("", self.PROPS, newer).changes
        assert not DefinitionsProvider().diff("", self.PROPS, dict(self.PROPS)).changes
        cluster.answers["apply"] = lambda _words: "crd/ones.x"
        DefinitionsProvider().update("", self.PROPS, newer)
        assert [words[0] for words in cluster.ran] == ["apply", "wait"]

    def test_a_refusal_is_kubectls_own_text(self, cluster):
        def refuse(_words):
            raise KubectlError("no matches for kind Nonsense")

        cluster.answers["apply"] = refuse
        with pytest.raises(KubectlError, match="Nonsense"):
            DefinitionsProvider().create(self.PROPS)
        assert len(cluster.ran) == 1
