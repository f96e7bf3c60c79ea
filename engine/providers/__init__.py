"""The embedded providers, by the types they serve."""

from pathlib import Path

from engine import urn as urns
from engine.project import KubernetesTools
from engine.providers import process
from engine.providers.base import Foreign, Previewed, Provider, ProviderResource
from engine.providers.command import LocalCommand, RemoteCommand, RemoteCopy
from engine.providers.helm import RELEASE, Release
from engine.providers.kubernetes import Cluster, Object, embeds
from engine.providers.ssh import Sessions
from engine.values import Value

_PACKAGES = {"command", "random", "tls", "pulumi-python", "pulumi"}


class Providers:
    """Finds the provider of a type; those that are slow to import are made when first asked for."""

    def __init__(
        self, root: Path, config: dict[str, Value], project: str, kubernetes: KubernetesTools | None = None
    ) -> None:
        self._sessions = Sessions()
        self._kubernetes = Cluster(root, kubernetes) if kubernetes else None
        self._root, self._config, self._project = root, config, project
        self._made: dict[str, Provider] = {}

    def of(self, type_: str) -> Provider:
        """The provider of a resource type, a Foreign one if it is not embedded."""
        family = "dynamic" if type_.startswith("pulumi-python:dynamic") else type_
        if family.startswith("random:"):
            family = "random"
        if type_.startswith("kubernetes:") and type_ != RELEASE:
            family = "kubernetes" if embeds(type_) else "foreign"
        if family not in self._made:
            self._made[family] = self._make(family)
        return self._made[family]

    def close(self) -> None:
        """End what providers keep open."""
        process.kill_all()
        self._sessions.close()
        if self._kubernetes:
            self._kubernetes.close()

    def _make(self, family: str) -> Provider:
        made: Provider = Foreign()
        if urns.is_provider(family):
            package = family.split(":")[2]
            embedded = package in _PACKAGES or (package == "kubernetes" and self._kubernetes is not None)
            made = ProviderResource() if embedded else made
        elif family == "dynamic":
            from engine.providers.dynamic import Dynamic  # noqa: PLC0415

            made = Dynamic(self._config, self._project)
        elif family == "random":
            from engine.providers.random import Random  # noqa: PLC0415

            made = Random()
        elif family == "tls:index/privateKey:PrivateKey":
            from engine.providers.tls import PrivateKey  # noqa: PLC0415

            made = PrivateKey()
        elif family in (RELEASE, "kubernetes"):
            cluster = self._kubernetes or Cluster(self._root, KubernetesTools(Path("kubectl"), Path("helm")))
            made = Release(cluster, self._root) if family == RELEASE else Object(cluster)
            made = made if self._kubernetes else Previewed(made)
        elif family == "command:local:Command":
            made = LocalCommand(self._root)
        elif family == "command:remote:Command":
            made = RemoteCommand(self._sessions)
        elif family in ("command:remote:CopyToRemote", "command:remote:CopyFile"):
            made = RemoteCopy(self._sessions)
        return made
