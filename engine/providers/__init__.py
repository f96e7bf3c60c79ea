"""The embedded providers, by the types they serve."""

from pathlib import Path

from engine import urn as urns
from engine.project import KubernetesTools
from engine.providers import process
from engine.providers.base import Foreign, Previewed, Provider, ProviderResource
from engine.providers.command import LocalCommand, RemoteCommand, RemoteCopy
from engine.providers.ssh import Sessions
from engine.values import Value

_PACKAGES = {"command", "random", "tls", "pulumi-python", "pulumi"}
_RELEASE = "kubernetes:helm.sh/v3:Release"
_NOT_OBJECTS = ("kubernetes:helm.sh/", "kubernetes:yaml", "kubernetes:kustomize")


class Providers:
    """Finds the provider of a type; those that are slow to import are made when first asked for."""

    def __init__(
        self, root: Path, config: dict[str, Value], project: str, kubernetes: KubernetesTools | None = None
    ) -> None:
        self._sessions = Sessions()
        self._root, self._config, self._project, self._tools = root, config, project, kubernetes
        self._made: dict[str, Provider] = {}
        self._cluster: Value = None

    def of(self, type_: str) -> Provider:
        """The provider of a resource type, a Foreign one if it is not embedded."""
        family = type_
        if type_.startswith(("pulumi-python:dynamic", "random:")):
            family = type_.split(":", 1)[0]
        elif type_.startswith("kubernetes:") and type_ != _RELEASE:
            # Plain objects: no patch of one, no list, no component.
            foreign = type_.startswith(_NOT_OBJECTS) or type_.endswith(("Patch", "List"))
            family = "foreign" if foreign else "kubernetes"
        if family not in self._made:
            self._made[family] = self._make(family)
        return self._made[family]

    def close(self) -> None:
        """End what providers keep open."""
        process.kill_all()
        self._sessions.close()
        if self._cluster:
            self._cluster.close()

    def _make(self, family: str) -> Provider:
        made: Provider = Foreign()
        if urns.is_provider(family):
            package = family.split(":")[2]
            embedded = package in _PACKAGES or (package == "kubernetes" and self._tools is not None)
            made = ProviderResource() if embedded else made
        elif family == "pulumi-python":
            from engine.providers.dynamic import Dynamic  # noqa: PLC0415

            made = Dynamic(self._config, self._project)
        elif family == "random":
            from engine.providers.random import Random  # noqa: PLC0415

            made = Random()
        elif family == "tls:index/privateKey:PrivateKey":
            from engine.providers.tls import PrivateKey  # noqa: PLC0415

            made = PrivateKey()
        elif family == "tls:index/selfSignedCert:SelfSignedCert":
            from engine.providers.tls import SelfSignedCert  # noqa: PLC0415

            made = SelfSignedCert()
        elif family in (_RELEASE, "kubernetes"):
            from engine.providers import helm, kubernetes  # noqa: PLC0415

            tools = self._tools or KubernetesTools(Path("kubectl"), Path("helm"))
            self._cluster = self._cluster or kubernetes.Cluster(self._root, tools)
            made = helm.Release(self._cluster, self._root) if family == _RELEASE else kubernetes.Object(self._cluster)
            made = made if self._tools else Previewed(made)
        elif family == "command:local:Command":
            made = LocalCommand(self._root)
        elif family == "command:remote:Command":
            made = RemoteCommand(self._sessions)
        elif family in ("command:remote:CopyToRemote", "command:remote:CopyFile"):
            made = RemoteCopy(self._sessions)
        return made
