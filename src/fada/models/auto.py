"""transformers is told of the C-RNN as soon as its `AutoModel` is there: `import fada` loads neither.

Whoever imports both, in whichever order, can say `AutoModelForCTC.from_pretrained(folder)`.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader

_HOME = "transformers.models.auto.modeling_auto"


def announce() -> None:
    """Register the C-RNN, now if `AutoModel` is loaded, else when it will be."""
    if _HOME in sys.modules:
        _register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register() -> None:
    with suppress(ImportError):  # transformers without torch has no models
        import fada.models.crnn  # noqa: F401


class _Finder:
    """Finds nothing itself; the module that it waits for gets a loader that registers when it has been run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the module is that is waited for; None for all others."""
        if name != _HOME:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Runs a module as its own loader does, then registers."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader makes it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run it, and register."""
        self._loader.exec_module(module)
        _register()
