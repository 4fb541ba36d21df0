"""Rule for names of sites: no name can be mistaken for a path, an option, a key or a word of ours."""

from typing import Literal

from tacit.errors import require

# The coordinator's reserved name.
COORDINATOR = "coordinator"
# The signs that a name has not, by what bears it: records, which may be called anything else; a world, whose
# pictures and tables are files; or a machine of its own, with folders and letters.
FORBIDDEN = {"records": "@", "world": "@/", "machine": "@/\\"}


def require_site_name(field: str, name: str, *, of: Literal["records", "world", "machine"]) -> None:
    """Refuse a name that is ambiguous, or that its kind of bearer cannot have.

    Args:
        field: The field of the name.
        name: The name.
        of: The kind of bearer. A name from records may be in no file but theirs: a refusal shows it to their
            owner alone.
    """
    signs, machine = FORBIDDEN[of], of == "machine"
    clean = name == name.strip() and name != "" and not set(name) & set(signs)
    if machine:
        clean = clean and "\0" not in name and name.strip(".") != "" and name != COORDINATOR
    *others, last = [f'"{sign}"' for sign in signs]
    listed = f"{', '.join(others)} and {last}" if others else last
    besides = f', and not "{COORDINATOR}"' if machine else ""
    allowed = f"a name without {listed} and without blanks around it{besides}"
    require(clean, field, name, allowed, about_records=of == "records")
