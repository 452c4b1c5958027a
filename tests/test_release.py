"""What ``make dist`` builds can be published; ``tests/release.py`` also installs and tries it."""

from __future__ import annotations

from pathlib import Path

from tests import release


def test_wheel_and_sdist_hold_what_they_promise_under_one_version(tmp_path: Path) -> None:
    wheel, sdist = release.build(tmp_path)
    release.check_contents(wheel, sdist)


def test_python_that_is_not_at_hand_is_not_found() -> None:
    assert release.find_python("3.2") is None
    assert release.find_python(release.VERSIONS[0]) is not None
