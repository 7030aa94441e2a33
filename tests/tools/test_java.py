"""`tools.java`: which Java for Spark is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import java


def fake_java(home: Path, version: str) -> Path:
    """A directory with a Java that does nothing but tell its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java: neither JAVA_HOME nor one on the PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize("version", ["21.0.1", "11.0.20", "1.8.0_392"])
def test_java_home_goes_before_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    """JAVA_HOME is taken first, as every Java program does; one that is too old for Spark counts as
    none. A system's Java needs no wrapper."""
    home, other = fake_java(tmp_path / "a", version), fake_java(tmp_path / "b", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    new = java.Java(home, 21) if version.startswith("21") else None
    assert java.system_java() == new
    monkeypatch.setenv("PATH", str(other / "bin"))
    found = java.system_java()
    assert found == (new or java.Java(other, 17))
    with java.for_spark(found) as environment:
        assert environment["JAVA_HOME"] == str(found.home)
