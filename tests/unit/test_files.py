"""Files appear whole or not at all, whatever interrupts; process-wide settings stay untouched."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tokengraft.cli.options import check_out
from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import adding, write_json, write_text, writing, writing_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_folder_survives_a_failure_between_the_renames(
    failing: int, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write_text(out / "precious", "x")
    rename, calls = Path.replace, iter(range(1, 9))

    def replace(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(error), writing_folder(out) as folder:
        (folder / "new").touch()
    assert names(tmp_path) == ["out"]
    assert names(out) == ["precious"]


def test_a_signal_after_the_first_rename_brings_the_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is delivered when a rename has been done, before the next step begins."""
    out = tmp_path / "out"
    write_text(out / "precious", "x")
    rename, calls = Path.replace, iter(range(1, 9))

    def replace(self: Path, target: Path) -> Path:
        rename(self, target)
        if next(calls) == 1:
            raise KeyboardInterrupt
        return target

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt), writing_folder(out):
        pass
    assert names(tmp_path) == ["out"]
    assert names(out) == ["precious"]


def test_a_folder_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in ("old", "new"):
        with writing_folder(out) as folder:
            (folder / name).touch()
    assert names(tmp_path) == ["out"]
    assert names(out) == ["new"]


def test_a_failed_file_leaves_the_one_that_was_there(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.csv", "old")
    with pytest.raises(ValueError, match="stop"), writing(path) as temporary:
        assert temporary.suffix == ".csv"
        temporary.write_text("half")
        raise ValueError("stop")
    assert names(tmp_path) == ["a.csv"]
    assert path.read_text() == "old"


def test_the_umask_is_obeyed_and_never_touched(tmp_path: Path) -> None:
    """What another thread creates meanwhile is as private as it asked for."""
    before = os.umask(0o077)
    modes: set[int] = set()
    stop = threading.Event()

    def create() -> None:
        while not stop.is_set():
            path = tmp_path / "other"
            path.touch()
            modes.add(path.stat().st_mode & 0o777)
            path.unlink()

    other = threading.Thread(target=create)
    try:
        other.start()
        for _ in range(1000):
            write_json(tmp_path / "a.json", {})
        with writing_folder(tmp_path / "folder"):
            pass
    finally:
        stop.set()
        other.join()
        os.umask(before)
    assert modes == {0o600}
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_added_files_all_come_and_others_stay(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    write_text(out / "notes", "mine")
    write_text(out / "tables" / "a", "old")
    with adding(out) as new:
        write_text(new / "tables" / "a", "new")
        write_text(new / "manifest", "new")
        assert contents(out) | {"notes": "mine", "tables/a": "old"} == contents(out)
    assert contents(out) == {"notes": "mine", "tables/a": "new", "manifest": "new"}
    assert names(out) == ["manifest", "notes", "tables"]


@pytest.mark.parametrize("failing", range(1, 6))
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_anywhere_adds_nothing(
    failing: int, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three files are moved in and two out of their way: five renames, each of which may fail."""
    out = tmp_path / "out"
    write_text(out / "a", "old")
    write_text(out / "tables" / "b", "old")
    rename, calls = Path.replace, iter(range(1, 99))

    def replace(self: Path, target: Path) -> Path:
        now = next(calls) == failing
        if now and before:
            raise OSError
        rename(self, target)
        if now:
            raise KeyboardInterrupt
        return target

    with pytest.raises((OSError, KeyboardInterrupt)), adding(out) as new:
        for name in ("a", "tables/b", "figures/c"):
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text("new")
        monkeypatch.setattr(Path, "replace", replace)
    assert contents(out) == {"a": "old", "tables/b": "old"}
    assert names(out) == ["a", "tables"]


def test_folders_made_for_nothing_go_again(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for context in (writing, writing_folder, adding):
        with pytest.raises(ValueError, match="stop"), context(tmp_path / "here" / "x" / "y"):
            raise ValueError("stop")
        assert names(tmp_path) == ["here"] and names(tmp_path / "here") == []


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "big disk", tmp_path / "out"
    if there:
        write_text(target / "old", "x")
    link.symlink_to(target, target_is_directory=True)
    with writing_folder(link) as folder:
        write_text(folder / "new", "x")
    with adding(link) as folder:
        write_text(folder / "more", "x")
    assert link.is_symlink() and names(target) == ["more", "new"]
    assert names(tmp_path) == ["big disk", "out"]


def test_links_in_a_circle_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(TokengraftError, match="cannot be written to"):
        check_out(tmp_path / "a", lambda _: False)


@pytest.mark.parametrize("failing", [0, 1, 2, 3, 4])
def test_a_mount_point_gets_new_contents_or_keeps_the_old(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume of a container, say: it cannot be renamed."""
    monkeypatch.setattr(Path, "is_mount", lambda self: self == tmp_path)
    for name in ("both", "old"):
        write_text(tmp_path / name, "old")
    rename, calls = Path.replace, iter(range(1, 99))

    def replace(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    def write() -> None:
        with writing_folder(tmp_path) as folder:
            for name in ("both", "new"):
                (folder / name).write_text("new")
            monkeypatch.setattr(Path, "replace", replace)

    if failing:
        with pytest.raises(OSError, match="Input/output"):
            write()
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"both": "old", "old": "old"}
    else:
        write()
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"both": "new", "new": "new"}


def test_what_a_killed_process_left_goes_with_the_next_run(tmp_path):
    """A folder begun is removed; one that was moved away just before the end comes back."""
    out = tmp_path / "out"
    for name in (".out.0123abcd", ".out.0123abcd.old", ".out.4567abcd", ".other.0123abcd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    with pytest.raises(ZeroDivisionError), writing_folder(out):
        raise ZeroDivisionError
    assert (out / "a").read_text() == ".out.0123abcd.old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.0123abcd", "out"]
    for name in (".new.0123abcd", ".new.0123abcd.old", ".hidden"):
        (out / name).mkdir()
    with adding(out) as folder, adding(out) as another:
        assert folder.is_dir() and another.is_dir()  # what this process writes is no leftover
        (folder / "b").write_text("b")
    assert sorted(path.name for path in out.iterdir()) == [".hidden", "a", "b"]
