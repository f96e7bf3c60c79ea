"""What the preview believes of images holds of the real one: whose names are taken, which shells and interpreters are
there."""

from pathlib import Path

import pytest

from cluster.catalog.base_system import INTERPRETERS, LOGIN_SHELLS, missing_interpreter, of_the_system
from cluster.config.validators.names import REGULAR_UIDS

pytestmark = pytest.mark.e2e


@pytest.fixture
def image(real_images: Path, digest: str) -> Path:
    return real_images / digest / "root"


@pytest.mark.parametrize("table", ["passwd", "group"])
def test_every_name_of_the_image_is_refused_to_people(image: Path, table: str) -> None:
    rows = [line.split(":") for line in (image / "etc" / table).read_text().splitlines()]
    assert len(rows) > 20
    assert [row[0] for row in rows if not of_the_system(row[0])] == []
    assert [row[0] for row in rows if any(low <= int(row[2]) <= high for low, high in REGULAR_UIDS)] == []


def test_every_shell_and_interpreter_is_there(image: Path) -> None:
    assert [shell for shell in LOGIN_SHELLS if not there(image, Path(shell))] == []
    for name in INTERPRETERS:
        assert there(image, Path("/usr/bin") / name), name
        assert missing_interpreter(f"#!/usr/bin/{name}\n") is None


def test_nobody_is_turned_away_whose_shell_the_image_lists(image: Path) -> None:
    """sshd and chsh go by /etc/shells."""
    listed = [line for line in (image / "etc/shells").read_text().splitlines() if line.startswith("/")]
    assert [shell for shell in listed if there(image, Path(shell)) and shell not in LOGIN_SHELLS] == []


def there(image: Path, path: Path) -> bool:
    """Whether a program is in the image; its links are followed within it."""
    place = image / path.relative_to("/")
    for _ in range(5):
        if not place.parent.is_dir() or not place.is_symlink():
            break
        target = place.readlink()
        place = image / target.relative_to("/") if target.is_absolute() else place.parent / target
    return place.is_file()
