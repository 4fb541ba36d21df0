"""Names of sites: what they could be taken for is refused, by what bears them."""

import pytest

from tacit.errors import InvalidValue
from tacit.sites.names import COORDINATOR, require_site_name

BEARERS = ("records", "world", "machine")


@pytest.mark.parametrize("of", BEARERS)
@pytest.mark.parametrize("name", ["Oslo", "Sankt Olav's", "Ærø", "7", "a.b", 'the "other" one'])
def test_plain_names_are_taken_by_all(name: str, of: str) -> None:
    require_site_name("site", name, of=of)


@pytest.mark.parametrize("of", BEARERS)
@pytest.mark.parametrize("name", ["", " ", " Oslo", "Oslo\n", "a@b"])
def test_names_that_could_be_taken_for_others_are_taken_by_none(name: str, of: str) -> None:
    with pytest.raises(InvalidValue, match="without blanks around it"):
        require_site_name("site", name, of=of)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("a/b", ("records",)), ("a\\b", ("records", "world")), ("..", ("records", "world")),
        ("a\0b", ("records", "world")), (COORDINATOR, ("records", "world")),
    ],
)  # fmt: skip
def test_what_a_folder_bears_is_stricter(name: str, taken: tuple[str, ...]) -> None:
    for of in BEARERS:
        if of in taken:
            require_site_name("site", name, of=of)
            continue
        with pytest.raises(InvalidValue, match="must be a name without"):
            require_site_name("site", name, of=of)


@pytest.mark.parametrize(
    ("of", "allowed"),
    [
        ("records", 'a name without "@" and without blanks around it'),
        ("world", 'a name without "@" and "/" and without blanks around it'),
        (
            "machine",
            'a name without "@", "/" and "\\" and without blanks around it, and not "coordinator"',
        ),
    ],
)
def test_the_refusal_says_what_is_allowed(of: str, allowed: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        require_site_name("site", "a@b", of=of)
    assert allowed in str(refused.value)
