"""Properties in the state have the form of the CLI's providers, so that the CLI finds nothing to update."""

import importlib.metadata
import json

from engine.providers import base
from engine.state import crypter

REMOTE = """
import pulumi, pulumi_random
from pulumi_command import remote
hush = pulumi.Output.secret('key')
proxy = remote.ProxyConnectionArgs(host='h', private_key=hush)
at = remote.ConnectionArgs(host='h', private_key=hush, password='word', private_key_password='other', proxy=proxy)
remote.Command('c', connection=at, triggers=[1])
pulumi_random.RandomId('r', byte_length=4)
"""


def unsealed(value, decrypt):
    """Return a sealed value with each secret as ("secret", its value)."""
    if isinstance(value, dict) and "ciphertext" in value:
        text = value["ciphertext"] if decrypt is None else decrypt(value["ciphertext"])
        return ("secret", unsealed(json.loads(text), None))
    return {k: unsealed(v, decrypt) for k, v in value.items()} if isinstance(value, dict) else value


def forms(bench):
    """Return inputs and outputs in the state, of the remote command and of the default providers."""
    deployment = bench.stack().export_state()["deployment"]
    decrypt = crypter.Crypter(lambda: bench.passphrase, deployment["secrets_providers"]["state"]["salt"]).decrypt
    rows = [r for r in deployment["resources"] if ":providers:" in r["type"] or r["type"].endswith("remote:Command")]
    return {r["type"]: (unsealed(r["inputs"], decrypt), unsealed(r["outputs"], decrypt)) for r in rows}


def test_connections_and_default_providers_have_the_form_of_the_clis_providers(bench):
    """As CLI 3.260 with command 1.2.1, random 4.21.4 wrote the same program's; else its next preview shows updates."""
    bench.program(REMOTE)
    assert bench.up().ok
    found = forms(bench)
    filled = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15, "host": "h"}
    proxy = {**filled, "privateKey": ("secret", "key")}
    words = {"password": ("secret", "word"), "privateKeyPassword": ("secret", "other")}
    connection = ("secret", {**proxy, **words, "proxy": proxy})
    inputs = {"connection": connection, "triggers": [1]}
    assert found["command:remote:Command"] == (inputs, {**inputs, "stdout": "", "stderr": ""})
    random = {"version": importlib.metadata.version("pulumi-random")}
    assert found["pulumi:providers:random"] == ({"__internal": {}, **random}, random)
    command = {"version": importlib.metadata.version("pulumi-command"), "__pulumi-go-provider-version": "1.2.0"}
    assert found["pulumi:providers:command"] == ({"__internal": {}, **command}, command)


def test_an_explicit_provider_has_the_clis_form(bench):
    """As CLI 3.260 wrote that of pulumi-kubernetes 4.34.2."""
    bench.program("import pulumi_random\npulumi_random.Provider('p')")
    assert bench.up().ok
    version = {"version": importlib.metadata.version("pulumi-random")}
    assert forms(bench)["pulumi:providers:random"] == ({"__internal": {}, **version}, version)
    assert bench.up().summary == "nothing to do"


def test_framework_versions_are_those_of_the_pinned_providers():
    assert {(p, importlib.metadata.version(f"pulumi-{p}")) for p, _ in base.FRAMEWORKS} == {*base.FRAMEWORKS}
