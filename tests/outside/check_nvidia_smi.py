"""Documents of `nvidia-smi -q -x` of sound GPUs: a folder of them, of which none may give a fault."""

from pathlib import Path

import pytest
from health import gpu

from tests.outside.recorder import Recorder


def test_documents_of_sound_gpus_give_no_fault(artifact: Path, outside: Recorder) -> None:
    read = 0
    for path in sorted(artifact.glob("*.xml")):
        gpus = gpu.parse_gpus(path.read_text(errors="replace"))
        outcomes = {
            "ecc": gpu.ecc_errors_outcome(gpus, 0), "memory": gpu.memory_outcome(gpus),
            "state": gpu.gpu_state(gpus, fabric=True), "asks": gpu.needs_action(gpus),
        }  # fmt: skip
        for kind, outcome in outcomes.items():
            if not gpus or (outcome and outcome["state"] == "failed"):
                outside.differs("nvidia-smi", f"{path.name}: {len(gpus)} GPUs, {kind}: {outcome}")
        read += 1
        outside.did(
            f"{path.name}: " + ", ".join(f"{kind} {outcome['state']}" for kind, outcome in outcomes.items() if outcome)
        )
    if not read:
        pytest.fail(f"{artifact} has no file *.xml", pytrace=False)
    outside.holds("health-nvidia-smi-document")
