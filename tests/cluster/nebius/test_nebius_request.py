"""What a preview lists: quantities that cost money or count against a quota, as readable for many nodes as for few."""

from pathlib import Path

import pytest

from cluster.platforms.nebius.names import CREDENTIALS_VARIABLE, TOKEN_VARIABLE
from cluster.platforms.nebius.platform import NebiusLogin
from cluster.platforms.nebius.request import describe_request
from tests.cluster.nebius.clusters import FABRIC, gpus, nebius
from tests.cluster.stacks import config


def test_a_preview_lists_the_requested_quantities(reviewed) -> None:
    section = {
        "filesystems": {"submounts": {"data": {"mount": "/data", "existing": "computefilesystem-e00abc"}}},
        "workers": {"worker": {**FABRIC, "image_disk": {"size_gib": 930}}},
        "login": {"exposure": "internal"},
    }
    clusters = {
        "the guide's cluster": config("nebius"),
        "what exists is not counted": nebius(**{**gpus(capacity={"spot": {}}), "nebius": section}),
    }
    reviewed("nebius/request", {case: "\n".join(describe_request(cluster)) for case, cluster in clusters.items()})


def test_1000_nodes_take_no_more_lines_than_2() -> None:
    few, many = (describe_request(nebius(**gpus(count=count))) for count in (2, 1000))
    assert len(few) == len(many)
    assert any("in 10 node groups" in line and "8000 GPUs" in line for line in many)


class TestCredentials:
    @pytest.fixture(autouse=True)
    def _nothing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in (TOKEN_VARIABLE, CREDENTIALS_VARIABLE):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", lambda: tmp_path)

    def test_they_are_a_token_or_a_service_accounts_file_that_is_there_or_a_profile(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert not NebiusLogin().found({})
        with monkeypatch.context() as patch:
            patch.setenv(TOKEN_VARIABLE, "t")
            assert NebiusLogin().found({})
            patch.delenv(TOKEN_VARIABLE)
            patch.setenv(CREDENTIALS_VARIABLE, str(tmp_path / "key.json"))
            assert not NebiusLogin().found({})
            (tmp_path / "key.json").write_text("{}")
            assert NebiusLogin().found({})
        (tmp_path / ".nebius").mkdir()
        (tmp_path / ".nebius/config.yaml").write_text("profiles: {}\n")
        assert NebiusLogin().found({})
