"""How files get to another machine: a small shell script there, and what it reads on its standard input."""

import io
import shlex
import tarfile
from pathlib import Path

from engine.errors import EngineError
from engine.values import Props

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


def script_and_data(source: Props, target: str) -> tuple[str, bytes]:
    """The script and its input for an asset or archive. Raises EngineError if the source can't be read."""
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
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, part in parts.items():
            data = part["text"].encode() if "text" in part else Path(part["path"]).read_bytes()
            info = tarfile.TarInfo(name)
            # Modes are not carried over, as with the provider's SFTP.
            info.size, info.mode = len(data), 0o666
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
