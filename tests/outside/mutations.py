"""The wrong one of each assumption that an outside check holds, by its id: see mutation.py."""

from collections.abc import Mapping

from tests.outside.mutation import Mutation

_SLURM = "tests/outside/check_slurm.py"
_DISCOVERY = "tests/outside/check_discovery.py"
_SOPERATOR = "tests/outside/check_soperator.py"
_NEBIUS_OBJECTS = "components/nebius/api/objects.py"
_NEBIUS_CHECKS = "cluster/platforms/nebius/cloud_checks.py"
_NEBIUS_OFFERS = "cluster/platforms/nebius/cloud_offers.py"

MUTATIONS: Mapping[str, Mutation] = {
    # cluster-toolkit
    "a3mega-gpu-network-mtu": Mutation("cluster/catalog/fabrics.py", "mtu=8896,  # the", "mtu=8244,  # the"),
    "a3mega-nic-order": Mutation("tests/outside/check_cluster_toolkit.py", '["system", *(f"gpu', '["none", *(f"gpu'),
    "a3mega-nic-names": Mutation("cluster/catalog/fabrics.py", '"enp6s0", "enp7s0"', '"enp7s0", "enp6s0"'),
    "roce-one-network": Mutation("cluster/catalog/fabrics.py", 'profile="vpc-roce"', 'profile="vpc-falcon"'),
    "roce-nic-order": Mutation("cluster/catalog/fabrics.py", 'nic_type="MRDMA"', 'nic_type="GVNIC"'),
    "roce-nic-names": Mutation("cluster/catalog/fabrics.py", '"enp192s20"', '"enp192s21"'),
    "image-dcgm-plugins": Mutation(
        "scripts/image/gpu/24-dcgm.sh", "datacenter-gpu-manager-4-core)", "datacenter-gpu-manager-4-proprietary)"
    ),
    "image-container-toolkit": Mutation("scripts/image/gpu/22-containers.sh", "version 1.17.7-1", "version 1.17.6-1"),
    "image-limits": Mutation("scripts/image/system/52-limits.sh", "* - memlock unlimited", "* - memlock 65536"),
    "gib-packages": Mutation("scripts/image/gpu/27-gib.sh", "gpudirect-gib-apt main", "gpudirect-gib-apt other"),
    "nccl-tcpxo-environment": Mutation(
        "scripts/jobs/environment/tcpxo.sh", "/dev/aperture_devices", "/dev/aperture_device"
    ),
    "gib-environment": Mutation("scripts/jobs/environment/gib.sh", "NCCL_NET=gIB", "NCCL_NET=IB"),
    "image-driver-of-blueprint": Mutation(
        "tests/golden/gcp/install-a3mega-managed.txt", "DRIVER_BRANCH=580", "DRIVER_BRANCH=570"
    ),
    "nccl-tests-build": Mutation("cluster/catalog/nccl.py", 'tag="24.04-py3"', 'tag="24.05-py3"'),
    "slurm-reboot-times": Mutation(
        "tests/golden/a3mega-managed/slurm.conf", "\nResumeTimeout=1125", "\nResumeTimeout=750"
    ),
    # discovery
    "google-compute-requests": Mutation("scripts/node/reconcile/compute_engine.py", '"minCount"', '"leastCount"'),
    "google-compute-answers": Mutation(
        "tests/lab/google/compute.py", '"operationType": self.kind', '"operationKind": self.kind'
    ),
    "google-storage-requests": Mutation(
        "scripts/gcp/google_apis.py", "/storage/v1/b/{bucket}/o/", "/storage/v1/b/{bucket}/object/"
    ),
    "google-secret-manager-answers": Mutation("tests/lab/google/metadata.py", '"payload"', '"content"'),
    "google-check-cloud": Mutation("tests/lab/google/discovery.json", '"guestCpus"', '"guestCores"'),
    "google-check-cloud-texts": Mutation(
        "cluster/platforms/gcp/cloud_checks.py", "SERVICES_AT_ONCE = 30", "SERVICES_AT_ONCE = 300"
    ),
    "google-price-list-form": Mutation("tests/lab/google/skus.py", '"serviceRegions"', '"serviceZones"'),
    "google-request-ids": Mutation(_DISCOVERY, '"a valid UUID"', '"any text"'),
    "google-bulk-all-or-none": Mutation(_DISCOVERY, "no instances will be created", "some instances will be created"),
    "google-maintenance-on-request": Mutation(_DISCOVERY, '{"PENDING", "ONGOING"}', '{"PENDING", "WAITING"}'),
    "google-resize-requests": Mutation(_DISCOVERY, '{"CREATING", "ACCEPTED"', '{"CREATING", "QUEUED"'),
    "google-termination-timestamp": Mutation(_DISCOVERY, '"will be terminated"', '"will be kept"'),
    "gcp-force-attach": Mutation(_DISCOVERY, "force attach the regional disk", "attach the regional disk by force"),
    "google-physical-host-form": Mutation(_DISCOVERY, "including the block, sub-block", "including the rack, block"),
    "google-report-request": Mutation(_DISCOVERY, "only allows IMMEDIATE", "only allows FUTURE"),
    "google-automatic-restart-of-ends": Mutation(_DISCOVERY, "(not terminated by a user)", "(or by a user)"),
    # advisories
    # All floors, since a feed may have records about any of them.
    "image-security-floors": Mutation(
        "cluster/catalog/floors.py",
        "# fmt: on\n",
        "from dataclasses import replace\n\nFLOORS = tuple(replace(row, version='0.0.1') for row in FLOORS)\n",
    ),
    # iam-dataset
    "google-create-permissions": Mutation(
        "cluster/platforms/gcp/permissions.py",
        '"instances.reset": ("compute.instances.reset",)',
        '"instances.reset": ()',
    ),
    "google-group-permissions": Mutation(
        "cluster/platforms/gcp/permissions.py", '"compute.instanceGroups.delete"', '"compute.instanceGroups.remove"'
    ),
    "google-services-and-roles": Mutation(
        "cluster/platforms/gcp/permissions.py", '"compute.resourcePolicies.use"', '"compute.resourcePolicies.take"'
    ),
    "google-check-cloud-roles": Mutation(
        "cluster/platforms/gcp/cloud_checks.py", '"file.instances.create"', '"file.shares.create"'
    ),
    "google-check-cloud-permissions": Mutation(
        "cluster/platforms/gcp/cloud_places.py", '"orgpolicy.policy.get"', '"orgpolicy.policies.get"'
    ),
    "google-roles-of-the-documentation": Mutation(
        "docs/guides/state.md", "`roles/storage.objectAdmin`", "`roles/storage.objectOwner`"
    ),
    # kruise, kubectl, monitoring-charts
    "nebius-exec-credential": Mutation(
        "cluster/platforms/nebius/kubectl.py",
        'EXEC_API = "client.authentication.k8s.io/v1beta1"',
        'EXEC_API = "client.authentication.k8s.io/v1"',
    ),
    "nebius-provider-folder": Mutation("cluster/platforms/nebius/kubectl.py", ":-./hpc}", ":-./cli}"),
    "soperator-kruise-webhooks": Mutation(
        "cluster/platforms/nebius/charts/kruise.yaml", "hpc/webhook-namespace:", "hpc/webhook-names:"
    ),
    "monitoring-chart-keys": Mutation(
        "cluster/platforms/nebius/charts/opentelemetry-collector.yaml", "kubernetesAttributes:", "kubernetesLabels:"
    ),
    "monitoring-charts-install": Mutation(
        "cluster/platforms/nebius/names.py", '"vmsingle-victoria-metrics-k8s-stack:8428"', '"vmsingle-metrics:8428"'
    ),
    # price-list
    "google-list-prices": Mutation(
        "cluster/catalog/prices.csv",
        "gcp,pd-balanced,on_demand,GB month,2026-08-20,calculator,,,,0.1,0.11,",
        "gcp,pd-balanced,on_demand,GB month,2026-08-20,calculator,,,,0.2,0.22,",
    ),
    # logs and documents
    "nccl-log-format": Mutation("tests/outside/check_nccl_logs.py", "str(len(run.rows))", "str(len(run.rows) + 1)"),
    "health-nvidia-smi-document": Mutation("tests/outside/check_nvidia_smi.py", "if not gpus or", "if gpus or"),
    "image-dkms-status": Mutation("scripts/image/library.sh", "[/,].*: installed", "[/,].*: built"),
    # dpkg
    "image-packages-by-name": Mutation(
        "scripts/image/gpu/24-dcgm.sh", "datacenter-gpu-manager-4-dev", "datacenter-gpu-manager-4-none"
    ),
    "image-kernel-packages": Mutation(
        "scripts/image/system/12-kernel.sh", "'linux-headers-*' 'linux-gcp*'", "'linux-gcp*'"
    ),
    "image-kernel-files": Mutation("cluster/platforms/gcp/cloud_packages.py", '"linux-signed-"', '"linux-"'),
    "image-dpkg-query": Mutation(
        "scripts/image/slurm/31-slurm-packages.sh", "${Package}\\n' 'slurm*'", "${Package}\\n' 'slurm'"
    ),
    "machines-packages-by-name": Mutation("components/local/host/process.py", '"systemd-container"', '"systemd-none"'),
    "machines-apt-errors": Mutation(
        "components/local/host/images.py", "has no installation candidate", "has no candidate"
    ),
    "machines-slurm-of-distributions": Mutation(
        "cluster/catalog/images.py",
        'name="debian-12", slurm_versions=("22.05",)',
        'name="debian-12", slurm_versions=("23.11",)',
    ),
    # nebius-solution-library
    "nebius-platforms-and-presets": Mutation(
        "cluster/catalog/nebius_machine_types.py", "_HOPPER = (_gpu(1, 16, 200)", "_HOPPER = (_gpu(1, 16, 201)"
    ),
    "nebius-disk-steps": Mutation(
        "cluster/catalog/nebius_machine_types.py", "REPLICATED_STEP = 93", "REPLICATED_STEP = 9331"
    ),
    "nebius-node-reserves": Mutation(
        "cluster/catalog/nebius_machine_types.py", "max(0, vcpus - 1) * 1000", "max(0, vcpus - 2) * 1000"
    ),
    "nebius-drivers-presets": Mutation("cluster/platforms/nebius/versions.py", '"cuda13.0"', '"cuda13.9"'),
    "nebius-node-groups": Mutation(
        "cluster/platforms/nebius/stack_file_fields.py", "disk_gib: BootDiskGib = 192", "disk_gib: BootDiskGib = 193"
    ),
    "nebius-token-for-kubernetes": Mutation(
        "tests/outside/check_nebius_solution_library.py", '["var.iam_token"]', '["var.token"]'
    ),
    "mlperf-log-blocks": Mutation(
        "cluster/report/mlperf_log.py", 'ms, _whole(metadata.get("step_num"))', 'ms, _whole(metadata.get("step"))'
    ),
    # slurm
    "slurm-power-saving-words": Mutation(
        "cluster/catalog/slurm_releases.py", "23.11-26.05: KeepPowerSaveSettings", "24.05-26.05: KeepPowerSaveSettings"
    ),
    "slurm-endless-resume": Mutation(
        "cluster/catalog/slurm_releases.py",
        'VERSIONS[VERSIONS.index("25.05") :]',
        'VERSIONS[VERSIONS.index("24.11") :]',
    ),
    "slurm-boot-after-request": Mutation(_SLURM, '"boot_req_time = now;"', '"boot_req_time = then;"'),
    "slurm-power-down-force-requeues": Mutation(_SLURM, '"kill_running_job_by_node_"', '"keep_running_job_by_node_"'),
    "slurm-signs-its-own-reasons": Mutation(_SLURM, "reason_uid = auth_uid;", "reason_uid = no_uid;"),
    **dict.fromkeys(
        ("slurm-state-in-rounds", "slurm-files-not-synced"), Mutation(_SLURM, "SAVE_MAX_WAIT 5", "SAVE_MAX_WAIT 6")
    ),
    "slurm-requeue-gap": Mutation(_SLURM, "if (cred->ctime <= j->revoked)", "if (cred->ctime > j->revoked)"),
    "slurm-batch-delay": Mutation(_SLURM, "batch_sched_delay = 3;", "batch_sched_delay = 4;"),
    "slurm-scheduler-pass": Mutation(_SLURM, "MIN(sched_timeout, 2);", "MIN(sched_timeout, 3);"),
    "slurm-cloud-names-are-resolved-again": Mutation(_SLURM, '"if (!p->is_cloud)"', '"if (!p->is_clouds)"'),
    "slurm-upgrade-window": Mutation(
        "cluster/catalog/slurm_releases.py", '"26.05": ("25.11", "25.05", "24.11"),', '"26.05": ("25.11", "25.05"),'
    ),
    "slurm-own-metrics": Mutation("cluster/monitoring/files.py", '"jobs-users-accts")', '"jobs-users-none")'),
    "slurm-boot-time-rounded": Mutation(_SLURM, '"uint32_t up_time;"', '"uint64_t up_time;"'),
    "slurm-nodes-outlive-a-controller": Mutation(_SLURM, "MIN_CHECKIN_TIME 3 ", "MIN_CHECKIN_TIME 4 "),
    "slurm-batch-end-is-sent-again": Mutation(_SLURM, "RETRY_DELAY 15 ", "RETRY_DELAY 16 "),
    "slurm-backfill-year": Mutation(_SLURM, "YEAR_MINUTES;", "DAY_MINUTES;"),
    # terraform-provider-google
    "google-provider-timeouts": Mutation("tests/contract/provider_limits.py", "(120, 60, 60)", "(120, 60, 61)"),
    "google-service-order": Mutation(
        "tests/outside/check_terraform_provider_google.py", '".Projects.Get(project)"', '".Projects.Ask(project)"'
    ),
    "soperator-crds-exceed-a-release": Mutation(_SOPERATOR, '"Too long"', '"Too short"'),
    "soperator-crds-in-its-chart": Mutation(
        _SOPERATOR, 'our.chart == "helm-soperator"]', 'our.chart == "helm-nodesets"]'
    ),
    # nebius-api
    "nebius-kinds": Mutation("components/nebius/api/kinds.py", '"infiniband_fabric",', '"infiniband",'),
    "nebius-version-calls": Mutation(_NEBIUS_OBJECTS, ".get_compatibility_matrix", ".get_compatibility"),
    "nebius-kubernetes-versions": Mutation(_NEBIUS_OFFERS, 'row.get("end_of_life")', 'row.get("end_of_support")'),
    "nebius-quotas": Mutation(_NEBIUS_OBJECTS, "row.status.usage_percentage", "row.status.usage_share"),
    "nebius-room": Mutation(_NEBIUS_OBJECTS, 'count.get("data_state", "")', 'count.get("data_age", "FRESH")'),
    "nebius-platform-sizes": Mutation(_NEBIUS_OFFERS, '.get("allow_gpu_clustering")', '.get("allow_gpu_clusters", 1)'),
    "nebius-projects": Mutation(_NEBIUS_CHECKS, '.get("region", "")', '.get("location", "")'),
    "nebius-roles": Mutation(_NEBIUS_OBJECTS, "permit.spec.resource_id", "permit.spec.project_id"),
    "nebius-groups": Mutation(_NEBIUS_OBJECTS, '"tenant_user_account_id"', '"tenant_user_id"'),
    "nebius-capacity-blocks": Mutation(_NEBIUS_CHECKS, '.get("usage", 0)', '.get("used", 0)'),
    "nebius-buckets": Mutation(_NEBIUS_CHECKS, '"SCHEDULED_FOR_DELETION"', '"DELETED"'),
    "nebius-pages": Mutation(_NEBIUS_OBJECTS, "answer.next_page_token", "answer.next_page"),
    # soperator
    "soperator-slurm-of-versions": Mutation("cluster/platforms/nebius/versions.py", '"25.11.3"', '"25.11.4"'),
    "soperator-checks-namespace": Mutation(
        "cluster/platforms/nebius/versions.py", 'CLUSTER_NAME = "soperator"', 'CLUSTER_NAME = "other"'
    ),
    "soperator-chart-keys": Mutation(
        "cluster/platforms/nebius/charts/slurm-cluster.yaml", "sshdServiceType:", "sshdServiceKind:"
    ),
    "soperator-power-saving": Mutation(_SOPERATOR, '"powerState.Spec.ActiveNodes"', '"powerState.Spec.Nodes"'),
    "soperator-suspends-by-slurm-conf": Mutation(_SOPERATOR, "idle_on_node_suspend", "idle_on_suspend"),
    "soperator-late-nodes": Mutation(
        "tests/outside/check_soperator.py", '("ResumeFailProgram" in config)', '("ResumeProgram" in config)'
    ),
    "soperator-checks-skip-sleeping-nodes": Mutation(_SOPERATOR, '"POWERED_DOWN", "No', '"POWERED_OFF", "No'),
    "soperator-metrics": Mutation(_SOPERATOR, '"slurm_node_info"', '"slurm_nodes_info"'),
}
