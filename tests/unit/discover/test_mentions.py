"""What a command names, read off its words and its scripts."""

from __future__ import annotations

from pathlib import Path

from ingero.discover.command_files import MAX_SCRIPT_BYTES, read_mentions

PATH = {"PATH": "/usr/bin:/bin"}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_settings_before_a_program_count_and_lists_are_added_to() -> None:
    env = {**PATH, "LD_LIBRARY_PATH": "/one"}
    found = read_mentions(["env", "LD_LIBRARY_PATH=/two:/three", "A=b", "job"], env).env
    assert found["LD_LIBRARY_PATH"] == "/two:/three:/one"
    assert found["A"] == "b"


def test_the_text_given_to_a_shell_is_read_as_a_command(tmp_path: Path) -> None:
    found = read_mentions(
        ["sh", "-c", f"cd x && LIBS={tmp_path} LD_LIBRARY_PATH=$LIBS/lib ./job; true"], PATH
    )
    assert found.env["LD_LIBRARY_PATH"] == f"{tmp_path}/lib"
    assert tmp_path in found.folders


def test_scripts_are_followed_to_the_scripts_they_start(tmp_path: Path) -> None:
    write(tmp_path / "job" / "inner.sh", f"export LD_LIBRARY_PATH={tmp_path}\n")
    outer = write(tmp_path / "job" / "outer.sh", "#!/bin/sh\n. ./inner.sh\n")
    found = read_mentions([str(outer)], PATH)
    assert found.env["LD_LIBRARY_PATH"] == str(tmp_path)
    assert found.programs == [str(outer), str(tmp_path / "job" / "inner.sh")]
    assert set(found.homes) == {tmp_path / "job"}


def test_a_script_that_starts_itself_is_read_once(tmp_path: Path) -> None:
    script = write(tmp_path / "again.sh", f"sh {tmp_path}/again.sh\n")
    assert read_mentions([str(script)], PATH).programs.count(str(script)) == 1


def test_folders_and_libraries_named_in_a_script_are_places_to_look(tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    write(tmp_path / "other" / "libx.so", "")
    script = write(tmp_path / "train.py", f"LIBS = ['{tmp_path}/apart', \"other/libx.so\"]\n")
    found = read_mentions(["python3", str(script)], PATH)
    assert found.folders == [tmp_path / "apart", tmp_path / "other"]


def test_names_without_a_folder_are_those_of_the_working_folder_too(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", "")
    assert read_mentions(["python3", "train.py"], {}, tmp_path).programs[-1:] == [str(script)]
    assert str(script) not in read_mentions(["python3", "train.py"], {}).programs


def test_programs_of_path_are_no_home_of_the_job(tmp_path: Path) -> None:
    assert read_mentions(["sh", "-c", "x"], PATH).homes == []


def test_hostile_words_do_no_harm(tmp_path: Path) -> None:
    data = write(tmp_path / "data.csv", f"LD_LIBRARY_PATH={tmp_path}\n")
    binary = tmp_path / "odd.sh"
    binary.write_bytes(b"#!/bin/sh\n\0" + f"LD_LIBRARY_PATH={tmp_path}".encode())
    words = ["\0", "=", "a=", "$", "${", "$$x", "~/", "/" * 5000, "x" * (MAX_SCRIPT_BYTES + 1), "-", "::"]
    found = read_mentions([*words, str(data), str(binary)], {})
    assert "LD_LIBRARY_PATH" not in found.env
