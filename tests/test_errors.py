import inspect
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import errors
from tacit.errors import InvalidValue, TacitError, choices, hint, require, require_word


def drawn_tree() -> dict[str, str]:
    """Each exception in the module's docstring, with the one it hangs under."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"[ |`-]*(?P<name>[A-Z]\w+)(\s{2,}\S.*)?$", line)
        if not found or not line.startswith("    "):
            continue
        depth = found.start("name")
        above = [(column, name) for column, name in above if column < depth]
        parents[found["name"]] = above[-1][1] if above else "Exception"
        above.append((depth, found["name"]))
    return parents


def defined() -> dict[str, type]:
    return {
        name: thing
        for name, thing in inspect.getmembers(errors, inspect.isclass)
        if issubclass(thing, BaseException) and thing.__module__ == errors.__name__
    }


def test_every_exception_is_drawn_and_every_drawn_one_exists():
    assert set(drawn_tree()) == set(defined())


def test_the_drawn_tree_is_the_tree_of_classes():
    assert {name: thing.__bases__[0].__name__ for name, thing in defined().items()} == drawn_tree()


def test_every_exception_can_be_caught_as_one_of_ours_and_says_what_it_is():
    for thing in defined().values():
        assert issubclass(thing, TacitError)
        assert thing.__doc__


def test_an_invalid_value_is_a_value_error_too():
    assert issubclass(InvalidValue, ValueError)


def test_require_is_silent_when_its_condition_holds():
    require(True, "clip", 1.0, "above 0")


def test_require_names_the_field_the_value_and_what_is_allowed():
    with pytest.raises(InvalidValue) as caught:
        require(False, "clip", -1.0, "a finite number above 0")
    assert str(caught.value) == "clip = -1.0 is not allowed: it must be a finite number above 0"


def test_require_tells_a_word_from_a_number():
    with pytest.raises(InvalidValue, match=r"^clip = '1' is"):
        require(False, "clip", "1", "a number")


def test_require_word_is_silent_about_an_allowed_word():
    require_word("unit", "site", ("record", "site"))


def test_require_word_suggests_the_nearest():
    with pytest.raises(InvalidValue) as caught:
        require_word("unit", "recrod", ("record", "site"))
    assert str(caught.value) == (
        'unit = \'recrod\' is not allowed: it must be "record" or "site" (did you mean "record"?)'
    )


@pytest.mark.parametrize("given", [None, 3, True, "", ["record"]])
def test_require_word_refuses_what_is_not_a_word(given):
    with pytest.raises(InvalidValue, match="unit = "):
        require_word("unit", given, ("record", "site"))


def test_words_may_come_from_anything_that_can_be_walked_once():
    with pytest.raises(InvalidValue, match=r'"a", "b" or "c"'):
        require_word("letter", "z", iter("abc"))


def test_choices_read_like_a_sentence():
    assert choices(["a"]) == '"a"'
    assert choices(["a", "b"]) == '"a" or "b"'
    assert choices(["a", "b", "c"]) == '"a", "b" or "c"'


def test_a_hint_is_silent_when_no_word_is_near():
    assert hint("zebra", ["record", "site"]) == ""


def test_a_hint_names_one_word():
    assert hint("gausian", ["gaussian", "laplace"]) == ' (did you mean "gaussian"?)'


@settings(deadline=None, max_examples=50)
@given(st.one_of(st.text(), st.integers(), st.none(), st.floats()))
def test_a_hint_never_fails_and_never_suggests_what_is_not_allowed(given):
    words = ("gaussian", "laplace")
    assert hint(given, words) in ("", *(f' (did you mean "{word}"?)' for word in words))
