"""In which zones of Google Cloud GPUs are to be had.

Google adds zones from time to time: add yours to its row, if `gcloud compute machine-types list --zones ZONE` (A3 Mega)
or `gcloud compute accelerator-types list --filter zone:ZONE` (GPUs that are attached) shows them there.

Source: zones that Google has a price for, skypilot-catalog, catalogs/v8/gcp/vms.csv at 006059e0f18a. Google's own page
is cloud.google.com/compute/docs/gpus/gpu-regions-zones.
"""

A3_MEGA = tuple(
    """
    asia-east1-c asia-northeast1-b asia-southeast1-b asia-southeast1-c australia-southeast1-c europe-north1-c
    europe-west1-b europe-west1-c europe-west3-c europe-west4-b europe-west4-c us-central1-a us-central1-b
    us-central1-c us-east4-a us-east4-b us-east4-c us-east5-a us-west1-a us-west1-b us-west4-a
    """.split()
)
T4 = tuple(
    """
    asia-east1-a asia-east1-c asia-east2-a asia-east2-c asia-northeast1-a asia-northeast1-c asia-northeast3-b
    asia-northeast3-c asia-south1-a asia-south1-b asia-southeast1-a asia-southeast1-b asia-southeast1-c
    asia-southeast2-a asia-southeast2-b australia-southeast1-a australia-southeast1-c europe-central2-b
    europe-central2-c europe-west1-b europe-west1-c europe-west1-d europe-west2-a europe-west2-b europe-west3-b
    europe-west4-a europe-west4-b europe-west4-c me-west1-b me-west1-c northamerica-northeast1-c
    southamerica-east1-a southamerica-east1-b southamerica-east1-c us-central1-a us-central1-b us-central1-c
    us-central1-f us-east1-b us-east1-c us-east1-d us-east4-a us-east4-b us-east4-c us-west1-a us-west1-b us-west2-b
    us-west2-c us-west3-b us-west4-a us-west4-b
    """.split()
)
P4 = tuple(
    """
    asia-southeast1-a asia-southeast1-b asia-southeast1-c australia-southeast1-a australia-southeast1-b
    europe-west4-b europe-west4-c northamerica-northeast1-a northamerica-northeast1-b northamerica-northeast1-c
    us-central1-a us-central1-c us-east4-a us-east4-b us-east4-c us-west2-b us-west2-c
    """.split()
)
