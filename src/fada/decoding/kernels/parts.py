"""Parts of compiled functions that become machine code with their callers alone.

Numba optimises every function it compiles and makes machine code of it, also of one that nothing but other compiled
functions ever calls, and again with each of those. A part stays as it was lowered until it is linked into the function
that Python calls. Compiling takes three quarters of the time, and what comes out is as quick.

What Python calls is stored on disk. Numba gets ready to compile before it loads what is stored; here it does not, which
spares every start of a program some tenths of a second (and the import of scipy, where that is installed).
"""

import gc
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from numba import njit, typeof, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.runtime import rtsys
from numba.core.typed_passes import NativeLowering, NopythonRewrites, NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes


class _Linked(JITCodeLibrary):
    """Code that is linked into other code, and never run by itself."""

    def _optimize_final_module(self) -> None:
        """Left to those it is linked into."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """The last step of compiling a part: known to other compiled functions, and no machine code."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower the function into a library of its own."""
        state.library = _Linked(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        name: Any = [state.library].append  # numba tells compiled functions apart by a built-in function of their own
        state.targetctx.insert_user_function(name, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=name)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Inference(NopythonTypeInference):
    """Types, found once for every operator and kind of numbers; numba tries some twenty forms of it each time."""

    _name = "inference"
    _known: ClassVar[dict[Any, Any]] = {}

    def run_pass(self, state: Any) -> bool:
        """Infer the types of a function, and of the parts that it calls."""
        context = state.typingctx
        resolve = getattr(context, "_resolve_user_function_type", None)
        if resolve is None or "_resolve_user_function_type" in vars(context):
            return super().run_pass(state)  # another numba, or a part, met in the function that calls it

        def remembered(function: Any, arguments: Any, named: Any, literals: Any = None) -> Any:
            if not isinstance(function, types.Function) or named or not all(map(_is_number, arguments)):
                return resolve(function, arguments, named, literals)
            asked = function, tuple(arguments)
            if asked not in self._known:
                self._known[asked] = resolve(function, arguments, named, literals)
            return self._known[asked]

        context._resolve_user_function_type = remembered
        try:
            return super().run_pass(state)
        finally:
            del context._resolve_user_function_type


@contextmanager
def _uncollected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _is_number(kind: Any) -> bool:
    return isinstance(kind, types.Number | types.Boolean)


class _EntryCompiler(Compiler):
    """Numba's own without the steps for what is not written here: functions in functions, expressions of arrays."""

    steps: ClassVar[dict[Any, Any]] = {
        NopythonTypeInference: _Inference,
        InlineClosureLikes: None,
        NopythonRewrites: None,
    }

    def compile_extra(self, func: Any) -> Any:
        """Compile a function; Python does not look for garbage meanwhile, of which there is next to none."""
        with _uncollected():
            return super().compile_extra(func)

    def define_pipelines(self) -> Any:
        """The steps of compiling."""
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            steps = [(self.steps.get(step, step), told) for step, told in pipeline.passes]
            pipeline.passes = [(step, told) for step, told in steps if step is not None]
        return pipelines


class PartCompiler(_EntryCompiler):
    """For the option ``pipeline_class`` of a part."""

    steps: ClassVar[dict[Any, Any]] = {**_EntryCompiler.steps, NativeLowering: _PartLowering}


@cache
def digest_of(folder: Path) -> str:
    """Changes when any source file in a folder does."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _Stored(FunctionCache):
    """Machine code on disk, loaded by what knows nothing of compiling.

    Numba makes it anew when the file of the function is another, but the parts are in other files: they count as well.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (self._impl.locator.get_source_stamp(), digest_of(Path(__file__).parent))
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for arguments of these types, None if there is none."""
        rtsys.initialize(target_context)  # counts the references to arrays, and has memory for new ones
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def entry(function: Callable[..., Any]) -> Any:
    """A compiled function for Python to call."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    compiled: Any = njit(**options, pipeline_class=_EntryCompiler)(function)
    compiled._cache = _Stored(function)
    return compiled


def for_types_of(function: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """What Python calls, once it was called with these arguments, without a look at the types of the next ones, which
    must be the same: that look takes longer than to search a short line.
    """
    compiled = function.overloads.get(tuple(map(typeof, arguments)))
    return function if compiled is None else compiled.entry_point
