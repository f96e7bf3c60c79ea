"""The state file: the CLI's form, its encryption, and damaged files."""

import copy
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine import DamagedStateError, EngineError, PassphraseError, Scope, values
from engine.state import checkpoint, crypter, stored_stack

REPOSITORY = Path(__file__).parents[2]
SECRETS = """
import pulumi, pulumi_random
from living import Living
hush = pulumi.Output.secret('very-secret-word')
opts = pulumi.ResourceOptions(additional_secret_outputs=['stamp'])
a = Living('a', opts, value=hush, nested={'deep': [hush, {'key': hush}]})
pulumi.export('shown', 'plain')
pulumi.export('hidden', {'inside': a.stamp, 'word': hush})
pulumi.export('drawn', pulumi_random.RandomPassword('pw', length=20).result)
"""


def test_the_state_file_has_the_clis_form(bench):
    bench.up("a", ("b", {"refs": ["a"], "options": {"protect": True, "parent": "a"}}))
    folder = bench.root.parent / "project-backend" / ".pulumi"
    assert (folder / "meta.yaml").read_text() == "version: 1\n"
    document = json.loads((folder / "stacks" / "bench" / "dev.json").read_text())
    assert document["version"] == 3
    assert document["checkpoint"]["stack"] == "organization/bench/dev"
    latest = document["checkpoint"]["latest"]
    assert latest["secrets_providers"]["type"] == "passphrase"
    assert latest["secrets_providers"]["state"]["salt"].startswith("v1:")
    urns = [r["urn"] for r in latest["resources"]]
    assert urns == [
        "urn:pulumi:dev::bench::pulumi:pulumi:Stack::bench-dev",
        "urn:pulumi:dev::bench::pulumi:providers:pulumi-python::default",
        "urn:pulumi:dev::bench::pulumi-python:dynamic:Resource::a",
        "urn:pulumi:dev::bench::pulumi-python:dynamic:Resource$pulumi-python:dynamic:Resource::b",
    ]
    stack, provider, a, b = latest["resources"]
    assert (stack["custom"], a["custom"], a["id"]) == (False, True, "a.0")
    assert a["provider"] == f"{provider['urn']}::{provider['id']}"
    assert b["protect"] is True
    assert b["dependencies"] == [a["urn"]]
    assert b["propertyDependencies"] == {"refs": [a["urn"]]}
    assert b["parent"] == a["urn"]
    assert a["inputs"]["__provider"]["4dabf18193072939515e22adb298388d"] == "1b47061264138c4ac30d75fd1eb44270"
    assert a["sourcePosition"].startswith("project:///living.py#")
    history = sorted((folder / "history" / "bench" / "dev").iterdir())
    assert [f.name.split(".", 1)[1] for f in history] == ["checkpoint.json", "history.json"]
    assert json.loads(history[1].read_text())["result"] == "succeeded"


def test_secrets_are_encrypted_everywhere_and_decrypted_to_the_same_values(bench):
    bench.program(SECRETS)
    result = bench.up()
    assert result.outputs == {
        "shown": "plain",
        "hidden": {"inside": "[secret]", "word": "[secret]"},
        "drawn": "[secret]",
    }
    shown = bench.stack().outputs(show_secrets=True)
    assert shown["hidden"] == {"inside": "a.0=very-secret-word", "word": "very-secret-word"}
    drawn = shown["drawn"]
    bench.program(SECRETS.replace("'plain'", "'other'"))
    assert bench.up().ok
    files = [f for f in (bench.root.parent / "project-backend").rglob("*") if f.is_file()]
    assert any(f.name.endswith(".bak") for f in files)
    for file in files:
        assert "very-secret-word" not in file.read_text()
        assert drawn not in file.read_text()
    assert "very-secret-word" not in repr(bench.events)
    assert bench.stack().outputs(show_secrets=True)["drawn"] == drawn
    assert bench.up().summary == "nothing to do"


def test_a_wrong_passphrase_changes_nothing(bench):
    bench.program(SECRETS)
    bench.up()
    before = bench.stack().file.read_bytes()
    bench.passphrase = "wrong"
    for attempt in (bench.up, lambda: bench.run("destroy"), lambda: bench.stack().outputs(show_secrets=True)):
        with pytest.raises(PassphraseError):
            attempt()
    assert bench.stack().outputs()["shown"] == "plain"
    assert bench.stack().file.read_bytes() == before


@pytest.mark.parametrize("kind", ["up", "destroy", "refresh"])
@pytest.mark.parametrize("whose", ["state", "stack file"])
def test_a_wrong_passphrase_is_an_error_before_the_first_step_also_without_secrets(bench, kind, whose):
    """The first secret may be in the outputs of a step, after the object was created."""
    bench.program(
        "import pulumi, pulumi_random\n"
        "from pulumi_command import local\n"
        f"made = local.Command('a', create='touch {bench.living}/made', delete='rm {bench.living}/made')\n"
        "pulumi.export('pw', pulumi_random.RandomPassword('pw', length=20).result)\n"
    )
    if whose == "state":
        # After a destroy, the state has only its salt.
        bench.up()
        bench.run("destroy")
        bench.passphrase = "wrong"
    else:
        foreign = crypter.Crypter(lambda: "of another stack", "")
        foreign.unlock()
        (bench.root / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {foreign.salt}\n")
    before = bench.stack().file.read_bytes() if bench.stack().file.exists() else None
    with pytest.raises(PassphraseError, match="encryptionsalt" if whose == "stack file" else r"dev\.json"):
        bench.run(kind)
    with pytest.raises(PassphraseError):
        bench.stack().prepare_for_cli()
    assert bench.objects() == {}
    assert (bench.stack().file.read_bytes() if bench.stack().file.exists() else None) == before
    bench.passphrase = "correct horse"
    (bench.root / "Pulumi.dev.yaml").unlink(missing_ok=True)
    bench.stack().prepare_for_cli()
    assert bench.up().ok


def test_a_secret_is_the_same_for_any_order_of_its_keys():
    """The maps in the SDK's messages have no order."""
    box = crypter.Crypter(lambda: "x")
    one, other = (
        {values.SIG: values.SECRET, "value": dict(pairs)} for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    )
    assert crypter.seal(one, box.encrypt) == crypter.seal(other, box.encrypt)


def test_the_salt_of_the_stack_file_has_precedence_and_decrypts_configured_secrets(bench):
    """As after `pulumi config set --secret`, which writes both."""
    box = crypter.Crypter(lambda: bench.passphrase)
    sealed = box.encrypt("from-config")
    (bench.root / "Pulumi.dev.yaml").write_text(
        f"encryptionsalt: {box.salt}\n"
        f"config:\n  bench:word: {{secure: {sealed}}}\n  bench:list:\n    - secure: {sealed}\n"
    )
    bench.program(
        "import pulumi\nc = pulumi.Config()\npulumi.export('w', c.require_secret('word'))\n"
        "pulumi.export('l', c.require_secret_object('list'))\n"
    )
    bench.up()
    assert bench.stack().outputs(show_secrets=True) == {"w": "from-config", "l": ["from-config"]}
    assert bench.stack().outputs() == {"w": "[secret]", "l": "[secret]"}
    assert bench.stack().export_state()["deployment"]["secrets_providers"]["state"]["salt"] == box.salt
    # With another salt, as after the CLI made a new one, the state is read with the old salt and written with the new.
    other = crypter.Crypter(lambda: bench.passphrase)
    sealed = other.encrypt("again")
    (bench.root / "Pulumi.dev.yaml").write_text(
        f"encryptionsalt: {other.salt}\nconfig:\n  bench:word: {{secure: {sealed}}}\n  bench:list: [1]\n"
    )
    bench.program("import pulumi\npulumi.export('w', pulumi.Config().require_secret('word'))\n")
    bench.up()
    assert bench.stack().export_state()["deployment"]["secrets_providers"]["state"]["salt"] == other.salt
    assert bench.stack().outputs(show_secrets=True) == {"w": "again"}


def test_a_salt_of_the_cli_is_read(monkeypatch):
    """The one of Pulumi's own test of its passphrase manager (pkg/secrets/passphrase/manager_test.go)."""
    monkeypatch.setattr(crypter, "ROUNDS", 1_000_000)
    salt = "v1:fozI5u6B030=:v1:F+6ZduKKd8G0/V7L:PGMFeIzwobWRKmEAzUdaQHqC5mMRIQ=="
    box = crypter.Crypter(lambda: "password", salt)
    assert box.decrypt("v1:F+6ZduKKd8G0/V7L:PGMFeIzwobWRKmEAzUdaQHqC5mMRIQ==") == "pulumi"
    assert box.salt == salt


@pytest.mark.parametrize("how", ["cut", "no json", "no resources", "incomplete"])
def test_a_damaged_state_is_an_error_with_its_backup_and_stays(bench, how):
    bench.up("a")
    bench.up("a", "b")
    file = bench.stack().file
    text = file.read_text()
    damaged = {
        "cut": text[: len(text) // 2],
        "no json": "<<<<<<< HEAD",
        "no resources": '{"version": 3, "checkpoint": {"latest": {"resources": 7}}}',
        "incomplete": text.replace('"type":"pulumi-python:dynamic:Resource",', "", 1),
    }[how]
    file.write_text(damaged)
    with pytest.raises(DamagedStateError) as caught:
        bench.up()
    assert f"{file}.bak" in str(caught.value)
    assert file.read_text() == damaged
    backup = caught.value.backup
    assert backup is not None
    assert backup == file.with_name(file.name + ".bak")
    kept = backup.read_text()
    bench.stack().import_state(json.loads(kept))
    assert [aside.read_text() for aside in file.parent.glob("*.damaged-*")] == [damaged]
    assert backup.read_text() == kept, "the good one is not replaced by the bad one"
    assert bench.up().ok
    assert set(bench.resources()) == {"a", "b"}


def test_a_damaged_backup_is_skipped_for_the_copy_of_the_run_before(bench):
    bench.up("a")
    bench.up("a", "b")
    file = bench.stack().file
    for broken in (file, file.with_name(file.name + ".bak")):
        broken.write_text(broken.read_text()[:100])
    with pytest.raises(DamagedStateError) as caught:
        bench.preview()
    assert caught.value.backup is not None
    assert caught.value.backup.parent.name == "dev"
    bench.stack().import_state(json.loads(caught.value.backup.read_text()))
    assert bench.up().summary == "nothing to do"
    shutil.rmtree(bench.root.parent / "project-backend/.pulumi/backups")
    for broken in (file, file.with_name(file.name + ".bak")):
        broken.write_text("")
    with pytest.raises(DamagedStateError, match="put back a copy of your own"):
        bench.preview()


def test_pending_operations_are_imported_from_a_copy_and_not_from_an_export(bench):
    """An export may be old; the copy beside the state is not."""
    bench.up("a")
    bench.add_pending(("updating", "a"))
    document = json.loads(bench.stack().file.read_text())
    bench.stack().import_state(document)
    assert bench.up().counts["update"] == 1
    bench.stack().import_state({"version": 3, "deployment": document["checkpoint"]["latest"]})
    assert bench.up().summary == "nothing to do"


def test_export_and_import_restore_a_stack(bench):
    bench.up("a", ("b", {"refs": ["a"]}))
    document = json.loads(json.dumps(bench.stack().export_state()))
    assert document["version"] == 3
    bench.stack().file.unlink()
    assert bench.workspace().stacks() == []
    bench.stack().import_state(document)
    assert bench.workspace().stacks() == ["dev"]
    bench.take_log()
    assert bench.up().summary == "nothing to do"
    for wrong in (
        {},
        {"version": 5, "deployment": {}},
        {"version": 4, "features": ["views"], "deployment": {}},
        {"version": 3, "deployment": {"resources": [{"urn": "urn:x"}]}},
        {"version": 3, "deployment": {"resources": [{"urn": "urn:x", "type": "a:b:c"}]}},
        {"version": 3, "deployment": {"resources": 7}},
        {"version": 3, "checkpoint": {"latest": None}},
    ):
        with pytest.raises(EngineError, match="import"):
            bench.stack().import_state(wrong)


def taint(bench, name):
    """As `pulumi state taint` does."""

    def change(rows):
        return [{**row, "taint": True} if row["urn"].endswith(f"::{name}") else row for row in rows]

    bench.stack().edit(change)


def test_a_tainted_resource_is_replaced_once(bench):
    """With its mark a state is of version 4 (pkg/resource/stack/deployment.go of pulumi v3.274.1)."""
    bench.up("a", ("b", {"refs": ["a"], "options": {"delete_before_replace": True}}))
    taint(bench, "b")
    document = json.loads(bench.stack().file.read_text())
    assert (document["version"], document["features"]) == (4, ["taint"])
    assert bench.up(scope=Scope(targets=("**::a",))).summary == "nothing to do"
    assert json.loads(bench.stack().file.read_text())["version"] == 4, "the mark of what was left out stays"
    assert bench.preview().counts["replace"] == 1
    assert bench.up().counts["replace"] == 1
    assert "features" not in json.loads(bench.stack().file.read_text())
    assert bench.up().summary == "nothing to do"


def test_a_state_with_features_of_the_cli_alone_is_refused_and_stays(bench):
    bench.up("a")
    document = json.loads(bench.stack().file.read_text())
    text = json.dumps({**document, "version": 4, "features": ["taint", "views"]})
    bench.stack().file.write_text(text)
    for kind in ("up", "preview", "destroy"):
        with pytest.raises(EngineError, match=r"the state uses views, .* Use the Pulumi CLI"):
            bench.run(kind)
    with pytest.raises(EngineError, match=r"the state uses views, .* Use the Pulumi CLI"):
        bench.stack().edit(list)
    assert bench.stack().file.read_text() == text


def test_such_a_state_is_read_and_handed_to_the_cli(bench):
    """Commands read the outputs of a stack that the CLI runs, and an export has all that the CLI imports."""
    bench.program("import pulumi\npulumi.export('n', 5)\n")
    bench.up()
    file = bench.stack().file
    text = json.dumps({**json.loads(file.read_text()), "version": 4, "features": ["views"]})
    file.write_text(text)
    assert bench.stack().outputs() == {"n": 5}
    assert bench.stack().export_state().items() >= {"version": 4, "features": ["views"]}.items()
    bench.stack().prepare_for_cli()
    assert file.read_text() == text


def compress(file):
    """Compress a state as the CLI does with PULUMI_DIY_BACKEND_GZIP (saveCheckpoint in pkg/backend/diy/state.go of
    pulumi v3.274.1): the old form becomes `.bak`, and is deleted."""
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.replace(file.with_name(f"{file.name}.bak"))


def test_a_state_that_the_cli_has_compressed_is_read_and_written_uncompressed(bench):
    bench.up("a")
    file = bench.stack().file
    compress(file)
    assert bench.workspace().stacks() == ["dev"]
    assert set(bench.resources()) == {"a"}
    assert bench.preview().summary == "nothing to do"
    assert not file.exists(), "a preview changes nothing"
    bench.take_log()
    assert bench.up("a", "b").ok
    assert bench.take_steps() == ["create b.0"]
    assert [path.name for path in sorted(file.parent.iterdir())] == ["dev.json", "dev.json.bak", "dev.json.gz.bak"]
    assert bench.run("destroy").ok
    assert bench.objects() == {}
    compress(file)
    bench.stack().forget()
    assert bench.workspace().stacks() == []


def test_of_several_forms_of_a_state_the_last_written_counts(bench):
    bench.up("a", "b")
    file = bench.stack().file
    compress(file)
    bench.up("a")
    gz = file.with_name(f"{file.name}.gz")
    gz.with_name(f"{gz.name}.bak").rename(gz)  # an older one that was not deleted
    os.utime(gz, ns=(0, 0))
    assert set(bench.resources()) == {"a"}
    os.utime(file, ns=(0, 0))
    os.utime(gz)
    assert set(bench.resources()) == {"a", "b"}


def test_a_compressed_state_that_cannot_be_read_is_an_error(bench):
    bench.up("a")
    file = bench.stack().file
    compress(file)
    gz = file.with_name(f"{file.name}.gz")
    data = gz.read_bytes()
    for damaged in (data[:-20], b"", b"what"):
        gz.write_bytes(damaged)
        with pytest.raises(DamagedStateError, match=r"dev\.json\.gz: damaged"):
            bench.run("up")
    gz.rename(file.with_name(f"{file.name}.zst"))
    with pytest.raises(EngineError, match="run: zstd -d --rm"):
        bench.run("up")
    assert bench.workspace().stacks() == ["dev"]


def test_one_stack_reads_the_outputs_of_another(bench):
    bench.program("import pulumi\npulumi.export('n', 5)\npulumi.export('s', pulumi.Output.secret('hush'))\n")
    bench.stack("base").up(lambda _e: None)
    bench.program(
        "import pulumi\nref = pulumi.StackReference('organization/bench/base')\n"
        "pulumi.export('n', ref.require_output('n'))\npulumi.export('s', ref.require_output('s'))\n"
    )
    assert bench.up().outputs == {"n": 5, "s": "[secret]"}
    assert bench.up().summary == "nothing to do"
    bench.program("import pulumi\npulumi.StackReference('nowhere')\n")
    assert "nowhere" in bench.preview().failures[0].message


def test_a_stack_reads_its_own_outputs_of_the_last_run(bench):
    """As with the CLI: none at first, later those of the last run and not of this one."""
    program = (
        "import pulumi\nfrom pulumi.runtime import invoke\nname = 'organization/bench/dev'\n"
        "told = invoke('pulumi:pulumi:readStackOutputs', {'name': name}).value\n"
        "pulumi.export('hidden', told['secretOutputNames'])\n"
        "pulumi.export('before', told['outputs'].get('n', 0))\npulumi.export('n', NUMBER)\n"
        "pulumi.export('s', pulumi.Output.secret('hush'))\n"
    )
    bench.program(program.replace("NUMBER", "1"))
    assert bench.preview().outputs == {"before": 0, "hidden": [], "n": 1, "s": "[secret]"}
    assert bench.up().outputs == {"before": 0, "hidden": [], "n": 1, "s": "[secret]"}
    bench.program(program.replace("NUMBER", "2"))
    assert bench.up().outputs == {"before": 1, "hidden": ["s"], "n": 2, "s": "[secret]"}
    # A reference is a resource, and may be to the stack itself as well.
    bench.program("import pulumi\npulumi.export('n', pulumi.StackReference('bench/dev').get_output('n'))\n")
    assert bench.up().outputs == {"n": 2}


def test_outputs_and_exports_do_not_need_the_sdk(bench):
    """It takes a second to import, and these commands are frequent."""
    bench.up("a")
    code = (
        "import sys; from pathlib import Path; from engine import Workspace\n"
        f"w = Workspace(Path({str(bench.root)!r}), backend='file://{bench.root.parent}/project-backend')\n"
        "assert w.stacks() == ['dev'] and w.stack('dev').export_state()\n"
        "assert w.stack('dev').outputs() == {'stamps': {'a': 'a.0='}}\n"
        "assert not {'pulumi', 'grpc', 'cryptography'} & {*sys.modules}, 'imported too much'"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=bench.root.parents[-1], env={"PYTHONPATH": str(REPOSITORY)}
    )


def test_missing_stacks_and_wrong_names_are_errors(bench):
    with pytest.raises(EngineError, match="no stack dev"):
        bench.stack().outputs()
    with pytest.raises(EngineError, match="letters, digits"):
        bench.stack("../dev")
    with pytest.raises(EngineError, match="file://"):
        type(bench.workspace())(bench.root, backend="s3://bucket")


def test_no_operation_changes_a_state_that_was_read(bench):
    """It is read once and cached while the file is the same."""

    def edited():
        bench.stack().edit(lambda rows: stored_stack.renamed(stored_stack.unprotected(rows, None), b, "other"))

    graph = ["a", ("b", {"refs": ["a"], "props": {"nested": {"deep": ["x"]}}, "options": {"protect": True}}), "c"]
    bench.up(*graph)
    b = next(r["urn"] for r in checkpoint.read(bench.stack().file)["resources"] if r["urn"].endswith("::b"))
    uses = {
        "preview": lambda: bench.preview(("a", {"props": {"value": "new"}}), graph[1]),
        "outputs": lambda: bench.stack().outputs(show_secrets=True),
        "refresh": lambda: bench.run("refresh"),
        "nothing to do": lambda: bench.up(*graph),
        "update and delete": lambda: bench.up(("a", {"props": {"value": "new"}}), graph[1]),
        "edit": edited,
        "destroy": lambda: bench.run("destroy"),
        "prepare for the CLI": lambda: bench.stack().prepare_for_cli(),
    }
    for name, use in uses.items():
        read = checkpoint.read(bench.stack().file)
        kept = copy.deepcopy(read)
        use()
        assert read == kept, name
