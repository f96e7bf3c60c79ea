"""Passwords, ids, keys and certificates: created once, kept, in the requested form, and secret where they must be."""

import base64
import re
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key, load_ssh_public_key
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

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


def test_values_and_keys_are_created_once_in_the_requested_form(bench):
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


def test_a_changed_input_replaces_only_its_value(bench):
    bench.program(PROGRAM.format(length=20))
    bench.up()
    before = bench.stack().outputs(show_secrets=True)["out"]
    bench.program(PROGRAM.format(length=24))
    bench.up()
    assert bench.planned() == {"pw": "replace"}
    after = bench.stack().outputs(show_secrets=True)["out"]
    assert (len(after.pop("pw")), len(before.pop("pw"))) == (24, 20)
    assert after.pop("hashed") != before.pop("hashed")
    assert after == before


CERTIFICATE = """
import pulumi, pulumi_tls as t
key = t.PrivateKey('key', algorithm='ECDSA', ecdsa_curve='P256')
made = t.SelfSignedCert(
    'made', private_key_pem=key.private_key_pem, subject={{'common_name': 'dev'}}, dns_names=['dev-controller'],
    ip_addresses=['10.0.0.2'], validity_period_hours={hours}, early_renewal_hours={early},
    allowed_uses=['digital_signature', 'server_auth'],
)
pulumi.export('out', [key.private_key_pem, pulumi.Output.unsecret(made.cert_pem)])
"""


def test_a_certificate_fits_its_key_and_is_renewed_before_it_expires(bench):
    bench.program(CERTIFICATE.format(hours=48, early=24))
    bench.up()
    key, pem = bench.stack().outputs(show_secrets=True)["out"]
    made = load_pem_x509_certificate(pem.encode())
    assert made.public_key() == load_pem_private_key(key.encode(), None).public_key()
    made.verify_directly_issued_by(made)
    names = made.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert (names.get_values_for_type(DNSName), str(names[1].value)) == (["dev-controller"], "10.0.0.2")
    assert made.not_valid_after_utc - made.not_valid_before_utc == timedelta(hours=48)
    assert bench.up().summary == "nothing to do"
    bench.program(CERTIFICATE.format(hours=48, early=12))
    bench.up()
    assert (bench.planned(), bench.stack().outputs(show_secrets=True)["out"]) == ({"made": "update"}, [key, pem])
    bench.program(CERTIFICATE.format(hours=48, early=49))
    bench.up()
    assert bench.planned() == {"made": "replace"}
    assert bench.stack().outputs(show_secrets=True)["out"][1] != pem


@pytest.mark.parametrize(
    ("resource", "says"),
    [("r.RandomPassword('x', length=2, min_lower=3)", "too short"), ("t.PrivateKey('x', algorithm='DSA')", "ED25519")],
)
def test_impossible_inputs_are_refused(bench, resource, says):
    bench.program(f"import pulumi_random as r, pulumi_tls as t\n{resource}\n")
    result = bench.up()
    assert not result.ok
    assert says in result.failures[0].message
