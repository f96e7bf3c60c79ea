"""command:local:Command and command:remote:Command, equal to those of pulumi-command 1.2.

Changed `triggers` replace the resource: `create` runs again, and `delete` of the old resource. Any other changed input
updates it: `update` runs, or `create` if there is no `update`.
"""

import io
import os
import secrets
import shlex
from pathlib import Path

from engine.core.diff import Diff
from engine.errors import EngineError
from engine.providers import process
from engine.providers.base import Context, InputCheckError, Provider
from engine.providers.ssh import Sessions, only_keys, with_defaults, with_secret_keys
from engine.values import Props, Value, same, secret

_FILE = """set -e
d={target}
if [ -d "$d" ]; then {if_folder}; fi
mkdir -p -- "$(dirname -- "$d")"
cat > "$d"
"""
_FOLDER = """set -e
d={target}
if [ -e "$d" ] && [ ! -d "$d" ]; then echo "$d exists and is no folder" >&2; exit 1; fi
mkdir -p -- "$d"
tar -xf - -C "$d" --no-same-owner --no-same-permissions
"""


class _Command(Provider):
    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        return Diff(replaces=() if same(olds.get("triggers"), news.get("triggers")) else ("triggers",))

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        return f"{ctx.name}{secrets.token_hex(4)}", self._step(ctx, news.get("create"), news, {})

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return self._step(ctx, news.get("update") or news.get("create"), news, outputs)

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:  # noqa: ARG002
        self._step(ctx, outputs.get("delete"), outputs, outputs)

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:  # noqa: ARG002 - each id is random
        self._step(ctx, inputs.get("delete"), inputs, {})

    def trivial(self, kind: str, inputs: Props) -> bool:
        runs = {"creating": ("create",), "updating": ("update", "create"), "deleting": ("delete",)}
        return not any(inputs.get(name) for name in runs[kind])

    def _step(self, ctx: Context, command: str | None, props: Props, old_outputs: Props) -> Props:
        kept = {name: old_outputs.get(name, "") for name in ("stdout", "stderr")}
        if command is None:
            return {**props, **kept}
        return {**props, **process.results(self._run(ctx, command, props, old_outputs), command)}

    def _run(self, ctx: Context, command: str, props: Props, old_outputs: Props) -> process.ProcessOutcome:
        raise NotImplementedError


class LocalCommand(_Command):
    """Runs commands on this machine, in `dir` or the project's folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        for name in ("assetPaths", "archivePaths"):
            if news.get(name):
                raise InputCheckError(
                    f"{name}: the embedded engine has no such thing; read the files after the command"
                )
        return news

    def invoke(self, log: Value, args: Props) -> Props:
        """Run command:local:run, which has no state: it runs in every run of the program, also in a preview."""
        ctx = Context("", "command:local:run", "run", log)
        return self._step(ctx, args.get("command"), args, {})

    def _run(self, ctx: Context, command: str, props: Props, old_outputs: Props) -> process.ProcessOutcome:
        return process.run(
            [*(props.get("interpreter") or ["/bin/sh", "-c"]), command],
            stdin=props.get("stdin") or "",
            env={**os.environ, **(props.get("environment") or {}), **process.previous_output(props, old_outputs)},
            cwd=self._root / (props.get("dir") or ""),
            timeout=ctx.timeout,
            on_line=process.line_logger(props, ctx.log),
        )


class _Remote(Provider):
    """Base of providers that work over SSH, on the machine of the input `connection`."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        if "connection" not in news:
            raise InputCheckError("connection: missing; a remote command needs to know where to run")
        return {**news, "connection": secret(with_secret_keys(with_defaults(news["connection"])))}

    def hidden(self, inputs: Props) -> Props:
        return {**inputs, "connection": only_keys(inputs.get("connection"))}


class RemoteCommand(_Remote, _Command):
    """Runs commands over SSH."""

    def _run(self, ctx: Context, command: str, props: Props, old_outputs: Props) -> process.ProcessOutcome:
        return self._sessions.run(
            ctx,
            props["connection"],
            command,
            stdin=props.get("stdin") or "",
            environment=props.get("environment") or {},
            optional_environment=process.previous_output(props, old_outputs),
            on_line=process.line_logger(props, ctx.log),
        )


class RemoteCopy(_Remote):
    """command:remote:CopyToRemote and the older CopyFile, which copy files, folders and texts to a machine.

    As in pulumi-command, a file is copied into an existing folder under its own name. Of a folder whose path ends in
    `/` the content is copied, of any other the folder itself. Missing parents are created.
    """

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:
        if not (news.get("source") or news.get("localPath")):
            raise InputCheckError("source: missing; a copy needs to know what to copy")
        return super().check(ctx, olds, news)

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        forcing = ("triggers",) if ctx.type.endswith("CopyToRemote") else ("triggers", "localPath", "remotePath")
        return Diff(replaces=tuple(k for k in forcing if not same(olds.get(k), news.get(k))))

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        self._copy(ctx, news)
        return secrets.token_hex(4), news

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        if any(not same(olds.get(key), news.get(key)) for key in ("source", "localPath", "remotePath")):
            self._copy(ctx, news)
        return news

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:
        """Do nothing: the provider does not delete files either."""

    def _copy(self, ctx: Context, props: Props) -> None:
        source = props.get("source") or {"path": props["localPath"]}
        script, data = script_and_data(source, props["remotePath"])
        outcome = self._sessions.run(ctx, props["connection"], script, stdin=data)
        if outcome.status:
            raise EngineError(f"copying to {props['remotePath']}: {outcome.stderr.strip() or outcome.status}")


def script_and_data(source: Props, target: str) -> tuple[str, bytes]:
    """Return the script that writes an asset or archive, and its input. Raises EngineError if it can't be read."""
    quoted = shlex.quote(target)
    if "text" in source:
        refuse = 'echo "$d is a folder: a text needs the path of a file" >&2; exit 1'
        return _FILE.format(target=quoted, if_folder=refuse), source["text"].encode()
    if "assets" in source:
        return _FOLDER.format(target=quoted), _tar(source["assets"])
    path = source.get("path")
    if not path:
        raise EngineError(f"{source.get('uri')}: the embedded engine fetches nothing; give a file that is here")
    file = Path(path)
    if file.is_dir():
        inside = "" if str(path).endswith("/") else file.resolve().name + "/"
        parts = {f"{inside}{p.relative_to(file)}": {"path": str(p)} for p in sorted(file.rglob("*")) if p.is_file()}
        return _FOLDER.format(target=quoted), _tar(parts)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from None
    return _FILE.format(target=quoted, if_folder=f'd="$d"/{shlex.quote(file.name)}'), data


def _tar(parts: dict[str, Props]) -> bytes:
    import tarfile  # noqa: PLC0415 - slow to import

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, part in parts.items():
            data = part["text"].encode() if "text" in part else Path(part["path"]).read_bytes()
            info = tarfile.TarInfo(name)
            # Modes are not copied, as with the provider's SFTP.
            info.size, info.mode = len(data), 0o666
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
