"""Documents of `nvidia-smi -q -x` of sound GPUs: a folder of them, of which none may give a fault."""

from pathlib import Path

import pytest
from health import gpu

from tests.outside.recorder import Recorder


def test_documents_of_sound_gpus_give_no_fault(artifact: Path, outside: Recorder) -> None:
    read = 0
    for path in sorted(artifact.glob("*.xml")):
        gpus = gpu.parse_gpus(path.read_text(errors="replace"))
        outcomes = gpu.judged_outcomes(gpus, gpu.judge(gpus, fabric=True), ecc_errors=0)
        for kind, outcome in outcomes.items():
            if not gpus or outcome["state"] == "failed":
                outside.differs("nvidia-smi", f"{path.name}: {len(gpus)} GPUs, {kind}: {outcome}")
        read += 1
        outside.did(f"{path.name}: " + ", ".join(f"{kind} {outcome['state']}" for kind, outcome in outcomes.items()))
    if not read:
        pytest.fail(f"{artifact} has no file *.xml", pytrace=False)
    outside.holds("health-nvidia-smi-document")
