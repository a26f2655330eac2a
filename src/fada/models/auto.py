"""transformers is told of the C-RNN as soon as its `AutoModel` is there: `import fada` loads neither.

Whoever imports both, in whichever order, can say `AutoModelForCTC.from_pretrained(folder)`.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

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
    """Finds nothing itself; the loader of the module that it waits for registers when it has run it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the module is that is waited for; None for all others."""
        if name != _HOME:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register()

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
