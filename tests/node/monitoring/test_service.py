"""node_exporter is required of the controller; other machines get the image that has it later."""

import pytest
from monitoring import service
from system.host import SetupError


def test_a_machine_whose_image_has_none_yet_is_left_alone(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(service, "DEFAULTS", tmp_path)
    service.export("--web.listen-address=:9100", required=False)
    assert "no metrics before this machine is recreated" in capsys.readouterr().out
    with pytest.raises(SetupError, match="needs the package prometheus-node-exporter"):
        service.export("--web.listen-address=:9100")
