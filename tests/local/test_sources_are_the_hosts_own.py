"""Images come from where the host's own packages come from, and from nobody else's repository."""

from pathlib import Path

import pytest

from components.local.host.images import host_sources, one_liners, stanzas

DEB822 = """\
# the installer wrote this
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def test_deb822_keeps_the_release_its_updates_and_its_key() -> None:
    first, second = stanzas(DEB822, "bookworm")
    assert first.text == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert second.suites == {"bookworm-security"}


def test_one_line_keeps_options() -> None:
    text = (
        "# deb http://mirror.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/etc/keys/own.gpg] http://mirror.example/debian bookworm main contrib # ours\n"
        "deb-src http://mirror.example/debian bookworm main\n"
    )
    (only,) = one_liners(text, "bookworm")
    assert only.text == "deb [arch=amd64 signed-by=/etc/keys/own.gpg] http://mirror.example/debian bookworm main\n"


def test_a_key_written_into_the_stanza_is_kept_whole() -> None:
    text = (
        "Types: deb\nURIs: https://mirror.example/debian/\nSuites: bookworm\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    )
    (only,) = stanzas(text, "bookworm")
    assert only.text.endswith(
        "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "deb [signed-by=/etc/keys/vendor.gpg] https://apt.vendor.example bookworm main\n",
        "deb https://apt.vendor.example/linux bookworm stable\n",
        "deb http://mirror.example/debian trixie main\n",
        "deb cdrom:[Debian 12]/debian bookworm main\n",
    ],
)
def test_other_peoples_repositories_and_releases_stay_out(text: str) -> None:
    assert list(one_liners(text, "bookworm")) == []


def test_a_stanza_that_is_switched_off_stays_out() -> None:
    assert list(stanzas("Enabled: no\n" + DEB822.split("\n\n")[1], "bookworm")) == []


class TestWholeHost:
    """If the host has only a part of the release (its updates, say), an image can't be made from that."""

    def _write(self, etc: Path, name: str, text: str) -> None:
        (etc / "sources.list.d").mkdir(exist_ok=True)
        (etc / name).write_text(text)

    def _system(self, etc: Path) -> Path:
        """Another one than that of the sources."""
        self._write(etc, "os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
        return etc / "os-release"

    def test_both_formats_are_read(self, tmp_path: Path) -> None:
        self._write(tmp_path, "sources.list", "")
        self._write(tmp_path, "sources.list.d/debian.sources", DEB822)
        self._write(tmp_path, "sources.list.d/extra.list", "deb http://mirror.example/debian bookworm-updates main\n")
        self._write(tmp_path, "sources.list.d/vendor.list.disabled", "deb http://mirror.example/debian bookworm main\n")
        assert [source.suffix for source in host_sources("bookworm", tmp_path)] == [".sources", ".sources", ".list"]

    def test_updates_without_the_release_are_nothing(self, tmp_path: Path) -> None:
        self._write(tmp_path, "sources.list", "deb http://mirror.example/debian bookworm-updates main\n")
        assert host_sources("bookworm", tmp_path, self._system(tmp_path)) == ()

    def test_another_distribution_is_nothing(self, tmp_path: Path) -> None:
        self._write(tmp_path, "sources.list", "deb http://mirror.example/ubuntu noble main universe\n")
        assert host_sources("bookworm", tmp_path, self._system(tmp_path)) == ()

    def test_an_image_of_another_release_comes_from_the_same_mirror(self, tmp_path: Path) -> None:
        self._write(tmp_path, "os-release", "ID=debian\nVERSION_CODENAME=bookworm\n")
        self._write(tmp_path, "sources.list", "deb http://mirror.example/debian bookworm main\n")
        self._write(tmp_path, "sources.list.d/debian.sources", DEB822)
        one_line, *stanzas_ = host_sources("trixie", tmp_path, tmp_path / "os-release")
        assert one_line.text == "deb http://mirror.example/debian trixie main\n"
        assert [source.suites for source in stanzas_] == [{"trixie", "trixie-updates"}, {"trixie-security"}]
        assert "Suites: trixie trixie-updates\n" in stanzas_[0].text
        self._write(tmp_path, "os-release", 'ID=ubuntu\nVERSION_CODENAME="bookworm"\n')
        assert host_sources("trixie", tmp_path, tmp_path / "os-release") == ()
