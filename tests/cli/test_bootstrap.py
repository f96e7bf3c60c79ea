"""The installer's view of its surroundings: indexes that were set up for pip are used by uv."""

import os
import sys
from pathlib import Path

import pytest

from cli import bootstrap


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any configuration."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) or name in ("SSL_CERT_FILE", "ALL_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path


def from_pip(env: dict[str, str]) -> dict[str, str]:
    names = {*bootstrap.INDEX_SETTINGS.values(), *bootstrap.CONNECTION_SETTINGS.values(), "UV_INDEX_STRATEGY"}
    return {name: value for name, value in env.items() if name in names}


def test_pips_files_and_variables_reach_uv(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = surroundings / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror.example/simple\ntimeout = 7\n"
        "[install]\nextra-index-url =\n  https://a.example/simple\n  https://b.example/simple\nfind-links = /one /two\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/mine.pem")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
    assert from_pip(bootstrap.uv_environment()) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/one,/two",
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CERT_FILE": "/etc/ssl/mine.pem",
    }


def test_variables_win_over_files(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = surroundings / ".config/pip/pip.conf"
    file.parent.mkdir(parents=True)
    file.write_text("[global]\nindex-url = https://file.example/simple\n")
    assert bootstrap.pip_settings()["index-url"] == "https://file.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    assert bootstrap.uv_environment()["UV_DEFAULT_INDEX"] == "https://variable.example/simple"


def test_what_was_said_to_uv_itself_wins(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://extra.example/simple")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    monkeypatch.setenv("SSL_CERT_FILE", "/uv.pem")
    monkeypatch.setenv("PIP_CERT", "/pip.pem")
    assert from_pip(bootstrap.uv_environment()) == {
        "UV_DEFAULT_INDEX": "https://uv.example/simple",
        "SSL_CERT_FILE": "/uv.pem",
    }


def test_a_broken_pip_configuration_is_named(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = surroundings / "pip.conf"
    file.write_text("index-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    with pytest.raises(bootstrap.SetupError, match=f"^{file}: not a pip configuration"):
        bootstrap.uv_environment()


def test_without_pip_and_without_root_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(bootstrap.SetupError, match=r"apt-get install python3\.\d+-venv\)"):
        bootstrap.install_venv_module()
