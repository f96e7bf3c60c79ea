"""What the providers of resources would answer: outputs that inputs do not say, for tests over Pulumi's mocks."""

from collections.abc import Callable
from typing import Any

FAKE_SECRETS = ("-----BEGIN OPENSSH PRIVATE KEY-----", "bXVuZ2Uta2V5", "Password123")
"""Part of each secret that the fakes give out: whoever looks for leaks looks for these."""

FLEX = "pulumi-python:dynamic/gcp:FlexNode"
Fake = Callable[[dict[str, Any]], dict[str, Any]]
FAKES: dict[str, Fake] = {
    "tls:index/privateKey:PrivateKey": lambda i: {
        **i,
        "privateKeyPem": f"-----BEGIN PRIVATE KEY-----\n{FAKE_SECRETS[0]}\n-----END PRIVATE KEY-----\n",
        "privateKeyOpenssh": "-----BEGIN OPENSSH PRIVATE KEY-----\nfake\n",
        "publicKeyOpenssh": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFakeFakeFakeFakeFakeFakeFakeFakeFakeFakeFake\n",
    },
    "tls:index/selfSignedCert:SelfSignedCert": lambda i: {
        **i,
        "certPem": "-----BEGIN CERTIFICATE-----\nfake\n-----END CERTIFICATE-----\n",
    },
    "random:index/randomId:RandomId": lambda i: {**i, "hex": "0123456789abcdef"},
    # The MUNGE key, or the database's password.
    "random:index/randomPassword:RandomPassword": lambda i: {**i, "result": FAKE_SECRETS[2 - (i["length"] == 64)]},
    # Dynamic resources say nothing of their outputs on the wire, so each that has some is listed.
    "pulumi-python:dynamic/local:Network": lambda i: {**i, "bridge": f"bridge-{i['stack']}"},
    "pulumi-python:dynamic/local:Machine": lambda i: {
        **i,
        "instance_id": f"instance-{i['name']}",
        "boot_id": f"boot-{i['name']}",
        "host_key": f"ssh-ed25519 host-key-of-{i['name']}",
    },
    "pulumi-python:dynamic/gcp:BakedImage": lambda i: {
        **i,
        "self_link": f"projects/{i['project']}/global/images/{i['image']}",
    },
    "gcp:compute/address:Address": lambda i: {**i, "address": i.get("address", "192.0.2.9"), "selfLink": i["name"]},
    "gcp:compute/instance:Instance": lambda i: {**i, "instanceId": f"instance-{i['name']}"},
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate": lambda i: {
        **i,
        "instanceId": f"instance-{i['name']}",
        "networkInterfaces": [{"networkIp": f"ip-of-{i['name']}"}],
    },
    FLEX: lambda i: {**i, "instance_id": f"instance-{i['name']}", "address": f"ip-of-{i['name']}", "ends": 1796112000},
    "gcp:compute/instanceTemplate:InstanceTemplate": lambda i: {**i, "selfLink": f"templates/{i['machineType']}"},
    "gcp:compute/resourcePolicy:ResourcePolicy": lambda i: {**i, "selfLink": "policies/placement"},
    "gcp:secretmanager/secretVersion:SecretVersion": lambda i: {**i, "name": f"{i['secret']}/versions/1"},
    "gcp:storage/bucket:Bucket": lambda i: {**i, "projectNumber": 123456789012},
    "gcp:storage/bucketObject:BucketObject": lambda i: {**i, "outputName": i["name"]},
    "gcp:compute/regionDisk:RegionDisk": lambda i: {**i, "selfLink": f"disks/{i['name']}"},
    "gcp:compute/disk:Disk": lambda i: {**i, "selfLink": f"disks/{i['name']}"},
    "gcp:filestore/instance:Instance": lambda i: {
        **i,
        "networks": [{**i["networks"][0], "ipAddresses": ["10.128.0.2"]}],
    },
    "gcp:lustre/instance:Instance": lambda i: {**i, "mountPoint": f"10.128.0.2@tcp:/{i['filesystem']}"},
    "gcp:projects/iAMCustomRole:IAMCustomRole": lambda i: {**i, "name": f"projects/my-project/roles/{i['roleId']}"},
    "gcp:serviceaccount/account:Account": lambda i: {
        **i,
        "name": f"projects/my-project/serviceAccounts/{i['accountId']}@my-project.iam.gserviceaccount.com",
        "email": f"{i['accountId']}@my-project.iam.gserviceaccount.com",
        "member": f"serviceAccount:{i['accountId']}@my-project.iam.gserviceaccount.com",
    },
    "pulumi-python:dynamic/nebius:Allocation": lambda i: {
        **i,
        "status": {"details": {"allocated_cidr": "192.0.2.9/32"}},
    },
    "pulumi-python:dynamic/nebius:Bucket": lambda i: {**i, "status": {"domain_name": "bucket.storage.example"}},
    "pulumi-python:dynamic/nebius:AccessKey": lambda i: {
        **i,
        "status": {"aws_access_key_id": "NAKI0000"},
        "secret": FAKE_SECRETS[2],
    },
    "pulumi-python:dynamic/nebius:Cluster": lambda i: {
        **i,
        "status": {
            "control_plane": {
                "endpoints": {"public_endpoint": "https://192.0.2.10:443"},
                "auth": {"cluster_ca_certificate": "-----BEGIN CERTIFICATE-----\nfake\n-----END CERTIFICATE-----\n"},
            }
        },
    },
    "pulumi-python:dynamic/nebius:Wait": lambda i: {**i, "facts": {"address": "192.0.2.9", "port": 22}},
    "command:local:Command": lambda i: {**i, "stdout": "", "stderr": ""},
    "command:remote:Command": lambda i: {**i, "stdout": "", "stderr": ""},
}
