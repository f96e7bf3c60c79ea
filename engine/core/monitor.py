"""The resource monitor and the engine, as the SDK calls them over gRPC; here they are called directly."""

from collections.abc import Callable

from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, resource_pb2

from engine import urn as urns
from engine import values
from engine.core.registration import Goal, Registrar
from engine.core.run import Run, explain, with_outputs
from engine.errors import EngineError
from engine.providers.command import LocalCommand
from engine.values import Props, Value, plain
from engine.wire import from_struct, to_struct

_FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_OUTPUT_VALUES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
)
_SEVERITIES = {engine_pb2.INFO: "info", engine_pb2.WARNING: "warning", engine_pb2.ERROR: "error"}


class Engine:
    """Takes the program's log lines (`pulumi.log`)."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def Log(self, request: Value) -> Value:  # noqa: N802 - gRPC's names
        if request.severity == engine_pb2.DEBUG:
            return empty_pb2.Empty()
        self._run.log(_SEVERITIES[request.severity], request.message, request.urn or None, ephemeral=request.ephemeral)
        return empty_pb2.Empty()

    def RequirePulumiVersion(self, _request: Value) -> Value:  # noqa: N802
        return empty_pb2.Empty()


class Monitor:
    """Takes registrations, reads and invokes. Called from one thread each."""

    def __init__(self, run: Run, registrar: Registrar, stack_outputs: Callable[[str], Props]) -> None:
        """`stack_outputs` gives the outputs of another stack of the same backend."""
        self._run, self._registrar, self._outputs_of_another = run, registrar, stack_outputs
        root = urns.root(run.stack, run.project.name)
        self._last_outputs = next((r.outputs for r in run.state.resources() if r.urn == root), {})
        self.outputs: Props | None = None

    def GetDeploymentInfo(self, _request: Value) -> Value:  # noqa: N802
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def SignalAndWaitForShutdown(self, _request: Value) -> Value:  # noqa: N802
        return empty_pb2.Empty()

    def RegisterResource(self, request: Value) -> Value:  # noqa: N802
        run = self._run
        goal = Goal.of_registration(request, run.stack, run.project.name, run.project.root)
        done = self._registrar.register(goal)
        if done is None:
            return resource_pb2.RegisterResourceResponse(urn=goal.new.urn, result=resource_pb2.FAIL)
        return resource_pb2.RegisterResourceResponse(urn=done.urn, id=done.id, object=to_struct(done.outputs))

    def RegisterResourceOutputs(self, request: Value) -> Value:  # noqa: N802
        outputs = from_struct(request.outputs)
        if urns.type_of(request.urn) == urns.STACK_TYPE:
            self.outputs = outputs
        else:
            self._registrar.set_outputs(request.urn, outputs if self._run.dry else values.known(outputs))
        return empty_pb2.Empty()

    def ReadResource(self, request: Value) -> Value:  # noqa: N802
        goal = Goal.of_read(request, self._run.stack, self._run.project.name)
        done = self._registrar.read(goal, self._read)
        if done is None:
            return resource_pb2.ReadResourceResponse(urn=goal.new.urn, result=resource_pb2.FAIL)
        return resource_pb2.ReadResourceResponse(urn=done.urn, id=done.id, properties=to_struct(done.outputs))

    def _read(self, goal: Goal) -> Value:
        new, run = goal.new, self._run
        if new.type == "pulumi:pulumi:StackReference":
            new.inputs = {"name": new.id}
            return with_outputs(new, new.id, self._reference(new.id), new.inputs)
        provider = run.providers.of(new.type)
        if not provider.readable:
            run.refuse(new.type)
            return with_outputs(new, new.id, new.inputs, new.inputs)
        found = provider.read(run.context(new), new.id, plain(new.inputs), {})
        if found is None:
            raise EngineError(f"{new.type} {new.name}: there is none with the id {new.id!r}")
        return with_outputs(new, found[0], found[2], values.keep_secrets(found[1], new.inputs))

    def _reference(self, name: str) -> Props:
        """What a stack reference is: the outputs of a stack, named as [[ORGANIZATION/]PROJECT/]STACK. The stack's own
        are those of the last run, none at its first."""
        own = [self._run.project.name, self._run.stack]
        outputs = self._last_outputs if [own[0], *name.split("/")][-2:] == own else self._outputs_of_another(name)
        hidden = sorted(key for key, value in outputs.items() if values.contains_secret(value))
        return {"name": name, "outputs": outputs, "secretOutputNames": hidden}

    def Invoke(self, request: Value) -> Value:  # noqa: N802
        run, args = self._run, plain(from_struct(request.args))
        if request.tok == "pulumi:pulumi:getResource":
            resource = self._registrar.resource(args["urn"])
            if resource is None:
                raise EngineError(f"getResource: {args['urn']}: this program has no such resource")
            state = {"urn": resource.urn, "id": resource.id, "state": resource.outputs}
            return self._answer(state)
        if request.tok == "pulumi:pulumi:readStackOutputs":
            return self._answer(self._reference(args["name"]))
        if request.tok == "command:local:run":
            local = LocalCommand(run.project.root)
            try:
                return self._answer(local.invoke(run.log, args))
            except EngineError as error:
                raise EngineError(f"{request.tok}: {explain(error)}") from None
        run.refuse(request.tok)
        run.log("warning", f"{request.tok}: its provider is not embedded, so its result is unknown")
        return resource_pb2.ResourceInvokeResponse(unknown=True)

    @staticmethod
    def _answer(result: Props) -> Value:
        return resource_pb2.ResourceInvokeResponse(**{"return": to_struct(result)})

    def __getattr__(self, name: str) -> Value:
        if name[:1].isupper():
            raise EngineError(f"the embedded engine does not support {name}; run the program with the Pulumi CLI")
        raise AttributeError(name)
