"""Texts in the folders of a federation, from templates: scripts, systemd units, READMEs, a first `site.toml`.

Scripts find everything beside themselves, so that a folder may be moved. Units cannot: they name the place
where a folder usually lies, and `install.sh` puts the real one in.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import tomli_w

from tacit.errors import require

if TYPE_CHECKING:
    from jinja2 import Environment

# The default location of folders.
PLACE = "/opt/tacit"
# Flower takes a node that is gone for present for a minute: one that comes back sooner is turned away.
BACK_OFF = 75
# Texts that may hold any value: people read the one, and TOML quotes those of the other.
FREE = ("README.md.jinja", "site.toml.jinja", "agreed.toml.jinja")


def render_folder(role: str, slug: str, **values: object) -> dict[str, str]:
    """Render all texts of a folder, by their paths in it; a template with empty output makes no file.

    Args:
        role: The owner of the folder, `site` or `coordinator`.
        slug: The name of the folder, as it stands in the names of files and services.
        values: Further values of the templates.

    Raises:
        InvalidValue: Bash, systemd or nginx would take a part of a value for something else.
    """
    names = [name for name in _environment(checked=True).list_templates() if name.startswith(f"{role}/")]
    place = {"slug": slug, "place": f"{PLACE}/{slug}", "back_off": BACK_OFF}
    texts = {
        name.removeprefix(f"{role}/").removesuffix(".jinja").replace("SLUG", slug): _render(
            name, **place, **values
        )
        for name in names
    }
    return {path: text for path, text in texts.items() if text}


def distribution_readme(folders: dict[str, str]) -> str:
    """Render the page for who has made the folders: each site's name with its folder."""
    return _render("README.md.jinja", folders=folders)


def agreed_text(agreed: Mapping[str, Any]) -> str:
    """Render the table of what is agreed about the data, the last one of a site's file."""
    return agreed_mark() + tomli_w.dumps({"agreed": dict(agreed)})


def agreed_mark() -> str:
    """Render the words that stand above that table."""
    return _render("parts/agreed.toml.jinja")


def _render(name: str, /, **values: object) -> str:
    template = _environment(checked=not name.endswith(FREE)).get_template(name)
    program = version("tacit")
    return template.render(version=program, wheel=f"tacit-{program}-py3-none-any.whl", **values)


@cache
def _environment(*, checked: bool) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("tacit.deploy", "templates"),
        # Nothing here is HTML; what stands for itself in it is left alone, or refused.
        autoescape=False,
        finalize=_require_plain if checked else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update({"value": _toml_value, "table": _toml_table})
    return made


def _require_plain(value: object) -> object:
    """Refuse values that a reader of the text could parse as more than one word: texts quote nothing."""
    plain = re.fullmatch(r"[A-Za-z0-9._:/+-]*", str(value)) is not None
    require(plain, "value", str(value), "letters, digits and . _ : / + - alone: scripts and units hold it")
    return value


def _toml_value(value: object) -> str:
    return _toml_table({"value": value}).removeprefix("value = ")


def _toml_table(table: Mapping[str, Any]) -> str:
    return tomli_w.dumps(table).removesuffix("\n")
