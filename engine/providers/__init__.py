"""The embedded providers, by resource type."""

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
    """The providers of one run. Each is created when first needed, since some are slow to import."""

    def __init__(
        self, root: Path, config: dict[str, Value], project: str, kubernetes: KubernetesTools | None = None
    ) -> None:
        self._sessions = Sessions()
        self._root, self._config, self._project, self._tools = root, config, project, kubernetes
        self._providers: dict[str, Provider] = {}
        self._cluster: Value = None

    def of(self, type_: str) -> Provider:
        """Return the provider of a resource type, which is Foreign if it is not embedded."""
        family = type_
        if type_.startswith(("pulumi-python:dynamic", "random:")):
            family = type_.split(":", 1)[0]
        elif type_.startswith("kubernetes:") and type_ != _RELEASE:
            # Patches, lists and components are not embedded, only objects.
            foreign = type_.startswith(_NOT_OBJECTS) or type_.endswith(("Patch", "List"))
            family = "foreign" if foreign else "kubernetes"
        if family not in self._providers:
            self._providers[family] = self._create(family)
        return self._providers[family]

    def close(self) -> None:
        """End processes and connections, and remove private folders."""
        process.kill_all()
        self._sessions.close()
        if self._cluster:
            self._cluster.close()

    def _create(self, family: str) -> Provider:
        provider: Provider = Foreign()
        if urns.is_provider(family):
            package = family.split(":")[2]
            embedded = package in _PACKAGES or (package == "kubernetes" and self._tools is not None)
            provider = ProviderResource() if embedded else provider
        elif family == "pulumi-python":
            from engine.providers.dynamic import Dynamic  # noqa: PLC0415

            provider = Dynamic(self._config, self._project)
        elif family == "random":
            from engine.providers.random import Random  # noqa: PLC0415

            provider = Random()
        elif family.startswith("tls:"):
            from engine.providers.tls import PROVIDERS  # noqa: PLC0415

            provider = PROVIDERS.get(family, Foreign)()
        elif family in (_RELEASE, "kubernetes"):
            from engine.providers import helm, kubernetes  # noqa: PLC0415

            tools = self._tools or KubernetesTools(Path("kubectl"), Path("helm"))
            self._cluster = cluster = self._cluster or kubernetes.Cluster(self._root, tools)
            provider = helm.Release(cluster, self._root) if family == _RELEASE else kubernetes.Object(cluster)
            provider = provider if self._tools else Previewed(provider)
        elif family == "command:local:Command":
            provider = LocalCommand(self._root)
        elif family == "command:remote:Command":
            provider = RemoteCommand(self._sessions)
        elif family in ("command:remote:CopyToRemote", "command:remote:CopyFile"):
            provider = RemoteCopy(self._sessions)
        return provider
