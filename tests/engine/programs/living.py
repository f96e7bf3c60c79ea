"""A dynamic resource whose objects are files in a folder, so that a test can check which exist, and in which order they
were created and deleted.

An object is named NAME.GENERATION. A changed generation is another object and so a replacement; any other changed
property is an update. An object with a `host` (the id of another one) is deleted with that. A file `fail-NAME` beside
the folder makes all steps of that name fail; `hold-NAME` stops its creation half-way until the file is removed, and
its object is "held" until then.
"""

import os
import time
from pathlib import Path

from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult


def record(folder, line):
    with Path(folder, "..", "log").open("a") as log:
        log.write(line + "\n")


class LivingProvider(ResourceProvider):
    def _file(self, props):
        host = f"@{props['host']}" if props.get("host") else ""
        return Path(props["folder"], f"{props['name']}.{int(props['generation'])}{host}")

    def _step(self, what, props):
        folder = Path(props["folder"])
        record(folder, f"{what} {self._file(props).name}")
        if (folder.parent / f"fail-{props['name']}").exists():
            raise RuntimeError(f"{props['name']} was told to fail")
        time.sleep(props.get("delay", 0))

    def _stamp(self, props):
        return {**props, "stamp": f"{self._file(props).name}={props['value']}"}

    def create(self, props):
        self._step("create", props)
        file = self._file(props)
        file.write_text("half")
        hold = file.parent.parent / f"hold-{props['name']}"
        if hold.exists():
            file.write_text("held")
        while hold.exists():
            time.sleep(0.01)
        file.write_text(str(props["value"]))
        record(props["folder"], f"created {file.name}")
        return CreateResult(file.name, self._stamp(props))

    def diff(self, id_, olds, news):  # pyrefly: ignore[bad-override-param-name]
        if not Path(news["folder"], id_).exists():
            return DiffResult(changes=True)
        changed = [k for k in ("value", "refs", "generation", "host") if olds.get(k) != news.get(k)]
        replaces = [k for k in changed if k in ("generation", "host")]
        if changed and not replaces and news.get("engine_decides"):
            return DiffResult()
        return DiffResult(bool(changed), replaces, delete_before_replace=bool(news.get("provider_deletes_first")))

    def update(self, id_, olds, news):  # pyrefly: ignore[bad-override-param-name]
        self._step("update", news)
        Path(news["folder"], id_).write_text(str(news["value"]))
        return UpdateResult(self._stamp(news))

    def delete(self, id_, props):  # pyrefly: ignore[bad-override-param-name]
        self._step("delete", props)
        for file in (Path(props["folder"], id_), *Path(props["folder"]).glob(f"*@{id_}")):
            file.unlink(missing_ok=True)
        record(props["folder"], f"deleted {id_}")

    def read(self, id_, props):
        file = Path(props["folder"], id_)
        if not file.exists():
            return ReadResult(None, None)
        return ReadResult(id_, self._stamp({**props, "value": file.read_text()}))


class Living(Resource):
    stamp = None

    def __init__(self, name, opts=None, /, **props):
        given = {"name": name, "generation": 0, "value": "", "folder": os.environ["LIVING"], "stamp": None, **props}
        super().__init__(LivingProvider(), name, given, opts)
