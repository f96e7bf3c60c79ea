"""Passwords, ids and keys: drawn once, kept, of the form that was asked for, secret where they should be."""

import base64
import re

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key, load_ssh_public_key

PROGRAM = """
import pulumi, pulumi_random as r, pulumi_tls as t
pw = r.RandomPassword('pw', length={length}, special=False, min_numeric=3)
hidden = r.RandomBytes('bytes', length=32)
out = dict(
    pw=pw.result, hashed=pw.bcrypt_hash, b64=hidden.base64, id=r.RandomId('id', byte_length=4, prefix='p-').hex,
    n=r.RandomInteger('n', min=5, max=7).result, pet=r.RandomPet('pet', length=3).id,
    s=r.RandomShuffle('s', inputs=['a', 'b', 'c'], result_count=2).results, u=r.RandomUuid('u').result,
    text=r.RandomString('text', length=8, lower=False, upper=False, override_special='@').result,
)
for algorithm in ('ED25519', 'ECDSA', 'RSA'):
    key = t.PrivateKey(algorithm, algorithm=algorithm, ecdsa_curve='P256')
    out[algorithm] = [key.private_key_openssh, key.private_key_pem, key.public_key_openssh]
pulumi.export('out', out)
"""


def test_they_are_drawn_once_and_have_the_form_that_was_asked_for(bench):
    bench.program(PROGRAM.format(length=20))
    result = bench.up()
    assert result.outputs["out"]["pw"] == "[secret]"
    assert result.outputs["out"]["b64"] == "[secret]"
    assert result.outputs["out"]["RSA"][:2] == ["[secret]", "[secret]"]
    out = bench.stack().outputs(show_secrets=True)["out"]
    assert len(out["pw"]) == 20
    assert out["pw"].isalnum()
    # The form of bcrypt with 2^10 rounds.
    assert re.fullmatch(r"\$2b\$10\$[./A-Za-z0-9]{53}", out["hashed"])
    assert sum(c.isdigit() for c in out["pw"]) >= 3
    assert len(base64.b64decode(out["b64"])) == 32
    assert (out["id"][:2], len(out["id"])) == ("p-", 10)
    assert out["n"] in (5, 6, 7)
    assert out["pet"].count("-") == 2
    assert len(out["s"]) == 2
    assert set(out["text"]) <= set("@0123456789")
    for algorithm in ("ED25519", "ECDSA", "RSA"):
        openssh, pem, public = out[algorithm]
        key = load_ssh_private_key(openssh.encode(), None)
        assert load_pem_private_key(pem.encode(), None).public_key() == key.public_key()
        assert load_ssh_public_key(public.encode()) == key.public_key()
        assert public.endswith("\n")
    assert bench.up().summary == "nothing to do"
    assert bench.stack().outputs(show_secrets=True)["out"] == out


def test_a_changed_wish_draws_anew_and_leaves_the_others(bench):
    bench.program(PROGRAM.format(length=20))
    bench.up()
    before = bench.stack().outputs(show_secrets=True)["out"]
    bench.program(PROGRAM.format(length=24))
    bench.up()
    assert bench.ops() == {"pw": "replace"}
    after = bench.stack().outputs(show_secrets=True)["out"]
    assert (len(after.pop("pw")), len(before.pop("pw"))) == (24, 20)
    assert after.pop("hashed") != before.pop("hashed")
    assert after == before


@pytest.mark.parametrize(
    ("resource", "says"),
    [("r.RandomPassword('x', length=2, min_lower=3)", "too short"), ("t.PrivateKey('x', algorithm='DSA')", "ED25519")],
)
def test_impossible_wishes_are_refused(bench, resource, says):
    bench.program(f"import pulumi_random as r, pulumi_tls as t\n{resource}\n")
    result = bench.up()
    assert not result.ok
    assert says in result.failures[0].message
