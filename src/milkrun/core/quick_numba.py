"""A quicker numba while an entry is compiled: work is left out that changes nothing.

An operator is looked up once for the same types, lifetimes are analysed once, functions that wait for their entry are
made small only, and what never fails is called without looking whether it did. Numba's own functions are exchanged for
ours within `quick_numba`, and put back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import binding
from llvmlite.ir import Constant
from llvmlite.ir.instructions import Ret
from numba import types
from numba.core import errors, event
from numba.core.base import BaseContext as BaseTargetContext
from numba.core.callconv import RETCODE_OK
from numba.core.codegen import CPUCodegen, CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext
from numba.np import linalg

from milkrun.core.record import RecordType

SMALLER = "sroa", "instruction_combine", "simplify_cfg"
"""LLVM's passes over a function that is not in its entry yet."""


@contextmanager
def quick_numba() -> Iterator[None]:
    """Within it, numba leaves out work that changes nothing, here as in functions of its own. It holds numba's lock, so
    that no other compile meets this."""
    changed: tuple[tuple[Any, str, Any], ...] = (
        (BaseFunction, "get_call_type", _get_call_type),
        (PostProcessor, "run", _post_process),
        (type(errors.termcolor()), "_markup", _without_colour),
        (BaseContext, "resolve_getattr", _resolve_getattr),
        (event, "start_event", _start_event),
        (event, "end_event", _end_event),
        (CPUCodeLibrary, "add_ir_module", _add_ir_module),
        (BaseTargetContext, "insert_user_function", _insert_user_function),
        (BaseTargetContext, "refresh", _refresh),
    )
    if "llvm_module" not in signature(CPUCodegen._function_pass_manager).parameters:  # numba 0.61 makes one a module
        changed += ((CPUCodeLibrary, "_optimize_functions", _optimize_functions),)
    with global_compiler_lock, ExitStack() as back:
        _put_off_scipy()
        for owner, name, better in changed:
            if hasattr(owner, name):
                back.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, better)
        yield


def _put_off_scipy() -> None:
    """Numba imports scipy.linalg only to see whether it is there, for products of matrices; whoever has one compiled
    imports it then."""
    if "numba.np.arraymath" in sys.modules or find_spec("scipy") is None:
        return
    look = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        from numba.np import arraymath

        arraymath.ensure_blas = look
    finally:
        linalg.ensure_blas = look


_look_up = BaseFunction.get_call_type
_analyse = PostProcessor.run
_find_attribute = BaseContext.resolve_getattr
_start, _end = event.start_event, event.end_event
_add_module, _insert_function = CPUCodeLibrary.add_ir_module, BaseTargetContext.insert_user_function
_refresh_whole = BaseTargetContext.refresh
_refreshed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_never_fail: set[str] = set()  # names of functions, which are unique
_known: dict[Any, tuple[Any, Any]] = {}  # with what it was asked of, so that its id is not given to another


def _get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """What an operator gives for the same types is found once, not at each place, where numba tries up to some fifty
    definitions, twice."""
    flags = ConfigStack.top_or_none()
    if kws or flags is None or flags.fastmath or not all(isinstance(a, _PLAIN) for a in args):
        return _look_up(self, context, args, kws)
    key = id(self), id(context), tuple(args), flags.nrt, flags.error_model
    if key not in _known:
        _known[key] = _look_up(self, context, args, kws), self
    return _known[key][0]


def _post_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Which variables live where is analysed for generators and when objects are let go of, not after each pass."""
    if emit_dels or self.func_ir.is_generator:
        _analyse(self, emit_dels, extend_lifetimes)
        return
    self.func_ir.blocks = canonicalize_cfg(self.func_ir.blocks)
    self.func_ir.variable_lifetime = VariableLifetime(self.func_ir.blocks)
    self.func_ir.generator_info = None


def _optimize_functions(self: Any, module: Any) -> None:
    """What makes a function small, a third of the time of all passes: these come when it stands in its entry. Functions
    that are only declared have nothing to optimise, and one pass manager does for all others."""
    module.data_layout = self._codegen._data_layout
    passes, builder = self._codegen._function_pass_manager()
    few = binding.create_new_function_pass_manager()
    if all(hasattr(few, f"add_{name}_pass") for name in SMALLER):
        for name in SMALLER:
            getattr(few, f"add_{name}_pass")()
        passes = few
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def _refresh(self: Any) -> None:
    """Numba looks through all that was ever registered before each function, some six times; once is enough as long as
    nothing more is."""
    if _registered(self) != _refreshed.get(self):
        _refresh_whole(self)
        _refreshed[self] = _registered(self)


def _registered(context: Any) -> int:
    registries = (*context._registries, *context.typing_context._registries)
    return sum(len(kept) for registry in registries for kept in vars(registry).values() if isinstance(kept, list))


def _add_ir_module(self: Any, module: Any) -> None:
    """Notes which functions never fail: whoever calls them need not look whether they did."""
    for function in module.functions:
        # A function that is only declared has no blocks, and says nothing.
        ends = [block.terminator for block in function.blocks]
        if ends and all(_is_ok(end.return_value) for end in ends if isinstance(end, Ret)):
            _never_fail.add(function.name)
    _add_module(self, module)


def _is_ok(code: Any) -> bool:
    return isinstance(code, Constant) and code.constant == RETCODE_OK.constant


def _insert_user_function(self: Any, func: Any, fndesc: Any, libs: Any = ()) -> None:
    if fndesc.mangled_name in _never_fail:
        self.insert_func_defn([(_plain_call(fndesc, libs), func, fndesc.argtypes)])
    else:
        _insert_function(self, func, fndesc, libs)


def _plain_call(fndesc: Any, libs: Any) -> Any:
    """What stands for a call of a function that never fails: the call and what it gives. Numba looks at what became of
    it, in twenty lines and four blocks."""

    def call(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = context.declare_function(builder.module, fndesc)
        # Numba's convention: the place of the result, that of the error, then the arguments. No error is ever written.
        result, error = function.function_type.args[:2]
        with builder.goto_entry_block():
            place = builder.alloca(result.pointee)
        given = context.call_conv._get_arg_packer(fndesc.argtypes).as_arguments(builder, args)
        builder.call(function, [place, Constant(error, None), *given])
        return context.get_returned_value(builder, fndesc.restype, builder.load(place))

    call.libs = tuple(libs)  # type: ignore[attr-defined]
    return call


def _without_colour(self: Any, msg: str, color: Any = None, style: Any = None) -> str:
    """Numba raises thousands of errors that it catches itself, with colours in each."""
    return msg


def _start_event(kind: str, data: Any = None) -> None:
    """Each of ten thousand calls of LLVM is an event, twice."""
    if kind != "numba:llvm_lock":
        _start(kind, data)


def _end_event(kind: str, data: Any = None, exc_details: Any = None) -> None:
    if kind != "numba:llvm_lock":
        _end(kind, data, exc_details)


def _resolve_getattr(self: Any, kind: Any, attribute: str) -> Any:
    """A record knows its fields; numba would look through what all types have."""
    found = kind.type_of(attribute) if isinstance(kind, RecordType) else None
    return _find_attribute(self, kind, attribute) if found is None else found


_PLAIN = (types.Number, types.Boolean, types.Array, types.BaseTuple, types.SliceType, types.NoneType)
"""Types by which alone the answer is decided; a function as an argument may be compiled anew."""

CALLS = _is_ok, _plain_call
"""What decides how a call of a kernel is translated: compiled code depends on it."""
