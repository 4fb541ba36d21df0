"""Help of the command and of each verb, word for word; no verb is added or lost."""

import capture
import pytest

GOLDEN = capture.load("help")


@pytest.fixture(scope="module")
def found():
    return capture.collect_help()


def test_the_command_has_the_same_verbs(found):
    assert list(found) == list(GOLDEN)


@pytest.mark.parametrize("verb", GOLDEN)
def test_help_is_the_same(found, verb):
    assert found[verb].splitlines() == GOLDEN[verb]
