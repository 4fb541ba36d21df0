"""JSON documents that verbs print: keys, types, and all values that a rehearsal repeats.

A mask covers what the clock, the machine or the identity of a ledger decides. Of an audit keys and types are
compared, because ranks of attacked records may change with the last bit of a loss.
"""

import capture
import pytest

GOLDEN = sorted(path.stem for path in (capture.DATA / "documents").glob("*.json"))


def test_no_document_is_lost(documents):
    assert sorted(documents) == GOLDEN


@pytest.mark.parametrize("name", GOLDEN)
def test_a_document_is_the_same(documents, name):
    assert capture.compare(documents[name], capture.load(f"documents/{name}")) == []


@pytest.mark.parametrize("name", capture.RUNS)
def test_a_run_is_shown_as_it_was_printed(documents, name):
    assert documents[f"show-{name}"] == {"runs": [documents[f"run-{name}"]]}
