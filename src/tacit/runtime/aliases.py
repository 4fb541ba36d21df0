"""Import aliases: public doors that lead into a folder with a longer name.

`tacit.testing`, say, is `tacit.audits.sensitivity`: the same module object under both names.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # The base class takes ten times as long to import as this package.
    Loader = object


class AliasFinder(Loader):
    """Import a module by its alias.

    Args:
        targets: The full name of the module behind each alias.
    """

    def __init__(self, targets: Mapping[str, str]) -> None:
        self.targets = dict(targets)
        self._specs = dict[str, ModuleSpec | None]()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the spec of an alias; None for every other name."""
        return ModuleSpec(fullname, self) if fullname in self.targets else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the target."""
        module = import_module(self.targets[spec.name])
        # The import system is about to put the alias's spec in its place.
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of the target, which has been executed before."""
        alias = module.__spec__
        if alias is not None:
            module.__spec__ = self._specs.pop(alias.name, alias)


def install(targets: Mapping[str, str]) -> None:
    """Let the import system find these aliases."""
    sys.meta_path.append(AliasFinder(targets))
