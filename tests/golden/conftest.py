"""Tiny runs that golden tests share: each is trained once, when a test first asks for it."""

import contextlib
import shutil

import capture
import pytest
import record


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="session")
def train(folder):
    """Run an experiment of `experiments/` by the command, in one folder for all; its directory."""
    return lambda name: record.train(folder, name)


@pytest.fixture(scope="session")
def documents(folder, train):
    """Documents that verbs print about all runs."""
    for name in capture.RUNS:
        train(name)
    with contextlib.chdir(folder):
        return capture.collect_documents()


@pytest.fixture(scope="session")
def old(tmp_path_factory):
    """Copy of the run directories that an earlier version wrote, and the killed one resumed in two ways."""
    place = tmp_path_factory.mktemp("old")
    shutil.copytree(capture.KEPT, place, dirs_exist_ok=True)
    for name in ("resumed", "resumed-by-file"):
        shutil.copytree(capture.KEPT / "killed", place / name)
    shutil.copy(capture.EXPERIMENTS / "interrupted.toml", place)
    with contextlib.chdir(place):
        capture.call_json("run", "resumed", "--resume")
        capture.call_json("run", "interrupted.toml", "--out", "resumed-by-file", "--resume")
    return place
