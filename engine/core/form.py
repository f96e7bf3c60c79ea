"""Marks and notes that the CLI's own providers add to properties. Without them, the CLI would show the resource as to
be updated; states that an earlier version of this engine wrote lack them."""

from engine.state.resource import Resource
from engine.values import Props, Value, is_secret, secret

_KEYS = ("password", "privateKey", "privateKeyPassword")
"""What is secret inside a `connection` (provider/pkg/provider/remote/connection.go of pulumi-command)."""
FRAMEWORKS = {("command", "1.2.1"): "1.2.0"}
"""Providers built on pulumi-go-provider, by package and version, with what that framework says of its own version: the
file .version of its v1.3.0, which provider/go.mod of pulumi-command 1.2.1 names, and what the CLI writes with it."""
INTERNAL, _FRAMEWORK = "__internal", "__pulumi-go-provider-version"
"""Keys of a provider resource: the engine's own, which is no output, and what the framework writes."""


def connection(value: Value) -> Value:
    """A connection with its keys marked as secret once more inside of it, as pulumi-command's Check does."""
    if is_secret(value):
        return secret(connection(value["value"]))
    if not isinstance(value, dict):
        return value
    marked = {key: secret(v) if key in _KEYS and v is not None else v for key, v in value.items()}
    return {**marked, "proxy": connection(marked["proxy"])} if "proxy" in marked else marked


def provider(package: str, version: str, settings: Props, was: Props) -> tuple[Props, Props]:
    """Inputs and outputs of a provider resource, which had the inputs `was`: what the CLI wrote stays, since it may
    have run another build. (pkg/resource/deploy/providers/registry.go: `__internal` comes with a version.)"""
    if not version:
        return settings, settings
    framework = FRAMEWORKS.get((package, version))
    notes: Props = {_FRAMEWORK: framework} if framework else {}
    notes |= {key: value for key, value in was.items() if key.startswith("__") and key != INTERNAL}
    outputs = {**notes, **settings, "version": version}
    return {INTERNAL: was.get(INTERNAL, {}), **outputs}, outputs


def renewed(resource: Resource) -> bool:
    """Add them to a resource of a state; whether that changed anything."""
    before = resource.inputs, resource.outputs
    if resource.type.startswith("command:remote:"):
        resource.inputs, resource.outputs = (
            {**props, "connection": connection(props["connection"])} if "connection" in props else props
            for props in before
        )
    elif resource.is_default_provider:
        given = {k: v for k, v in resource.inputs.items() if k != "version" and not k.startswith("__")}
        package, version = resource.type.split(":")[2], resource.inputs.get("version", "")
        resource.inputs, resource.outputs = provider(package, version, given, resource.inputs)
    return before != (resource.inputs, resource.outputs)
