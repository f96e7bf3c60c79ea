"""Specs of every kind, in the API's JSON form: the shapes that the components send."""

from typing import Any

SPECS: dict[str, dict[str, Any]] = {
    "Network": {},
    "Subnet": {"network_id": "vpcnetwork-1", "ipv4_private_pools": {"use_network_pools": True}},
    "Allocation": {"ipv4_public": {"cidr": "/32", "subnet_id": "vpcsubnet-1"}},
    "Filesystem": {
        "type": "NETWORK_SSD", "size_gibibytes": 2048, "block_size_bytes": 4096, "forbid_deletion": True,
    },
    "GpuCluster": {"infiniband_fabric": "fabric-3"},
    "Disk": {"type": "NETWORK_SSD_IO_M3", "size_gibibytes": 93},
    "Cluster": {
        "control_plane": {
            "subnet_id": "vpcsubnet-1", "version": "1.35", "etcd_cluster_size": 3,
            "endpoints": {"public_endpoint": {}},
        }
    },
    "NodeGroup": {
        "version": "1.35",
        "fixed_node_count": 2,
        "strategy": {"max_unavailable": {"percent": 50}, "max_surge": {"percent": 0}, "drain_timeout": "600s"},
        "auto_repair": {"conditions": [{"type": "HardwareIssuesSuspected", "status": "TRUE", "timeout": "1s"}]},
        "template": {
            "metadata": {"labels": {"slurm.nebius.ai/nodeset": "worker"}},
            "taints": [{"key": "nvidia.com/gpu", "value": "8", "effect": "NO_SCHEDULE"}],
            "resources": {"platform": "gpu-h100-sxm", "preset": "8gpu-128vcpu-1600gb"},
            "boot_disk": {"size_gibibytes": 512, "block_size_bytes": 4096, "type": "NETWORK_SSD"},
            "gpu_cluster": {"id": "computegpucluster-1"},
            "gpu_settings": {"drivers_preset": "cuda12.8"},
            "os": "ubuntu24.04",
            "network_interfaces": [{"subnet_id": "vpcsubnet-1"}],
            "filesystems": [
                {
                    "attach_mode": "READ_WRITE", "mount_tag": "jail",
                    "existing_filesystem": {"id": "computefilesystem-1"},
                }
            ],
            "cloud_init_user_data": "#cloud-config\n",
            "preemptible": {},
            "max_pods": 32,
        },
    },
    "K8sRelease": {
        "cluster_id": "mk8scluster-1", "product_slug": "nebius/nvidia-gpu-operator", "namespace": "gpu-operator",
        "application_name": "gpu-operator", "set": {"driver.version": "550.54.15"},
    },
    "ServiceAccount": {"description": "state of the cluster"},
    "Group": {},
    "GroupMembership": {"member_id": "serviceaccount-1"},
    "AccessPermit": {"resource_id": "storagebucket-1", "role": "storage.object-editor"},
    "AccessKey": {
        "account": {"service_account": {"id": "serviceaccount-1"}}, "expires_at": "2027-01-02T03:04:05Z",
        "secret_delivery_mode": "INLINE",
    },
    "Bucket": {"versioning_policy": "ENABLED"},
}  # fmt: skip
