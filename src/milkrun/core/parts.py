"""Kernels as parts of the entries that call them: what makes their first use cheap. It leans on classes inside numba.

Numba optimises each function and makes machine code of it together with all that it calls, and its callers again. A
part is only translated, and optimised once, inside the entry that runs it. It is translated by those of numba's passes
that change a kernel, and an operator is looked up once for the same types.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core import ir, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, PassManager, _pass_registry, register_pass
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction

from milkrun.core.record import RecordType

NEEDLESS = frozenset({
    untyped_passes.WithLifting, untyped_passes.InlineClosureLikes, untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction, untyped_passes.InlineInlinables, untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll, untyped_passes.LiteralPropagationSubPipelinePass, typed_passes.NopythonRewrites,
    typed_passes.NoPythonSupportedFeatureValidation, typed_passes.DumpParforDiagnostics,
})  # fmt: skip
"""Passes for what kernels do not have: `with`, raised errors, closures, containers of mixed types, array expressions.
A kernel that has a function inside goes through all passes."""


class _Part(JITCodeLibrary):
    """The code of a kernel and of what it calls, as it was translated."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(typed_passes.NativeLowering):
    """Translates a kernel into a part, and tells numba that callers find its code there."""

    _name = "milkrun_part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        state["cr"] = state.cr._replace(cfunc=state.library)  # what numba knows compiled code by
        state.targetctx.insert_user_function(state.library, state.cr.fndesc, [state.library])
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _KnownNumbers(FunctionPass):
    """Puts the numbers that a record is known to have where a kernel reads them, so that numba leaves out the branches
    for other values."""

    _name = "milkrun_known_numbers"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        known = {state.func_ir.arg_names[k]: kind.known for k, kind in enumerate(state.args) if _knows(kind)}
        for block in state.func_ir.blocks.values() if known else ():
            for found in block.find_insts(ir.Assign):
                read = found.value
                if isinstance(read, ir.Expr) and read.op == "getattr" and read.value.name in known:
                    if read.attr in known[read.value.name]:
                        found.value = ir.Const(known[read.value.name][read.attr], read.loc)
                        state.func_ir._definitions[found.target.name] = [found.value]
        return True


def _knows(kind: Any) -> bool:
    return isinstance(kind, RecordType) and bool(kind.known)


class _Passes(PassManager):
    """Numba's passes without its records of time and events, and without an analysis of lifetimes after each of them:
    the last one before the translation makes it anew."""

    def _runPass(self, index: int, step: Any, state: Any) -> None:
        step.analysis = self._analysis
        for run in (step.run_initialization, step.run_pass, step.run_finalizer):
            run(state)
        if _pass_registry.get(type(step)).mutates_CFG and state.func_ir is not None:
            state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)


class PartCompiler(CompilerBase):
    """Numba's passes with a translation of our own."""

    def define_pipelines(self) -> list[PassManager]:
        whole = DefaultPassBuilder.define_nopython_pipeline(self.state, "milkrun_part")
        lowering = typed_passes.NativeLowering
        passes = [(_PartLowering if p is lowering else p, why) for p, why in whole.passes]
        if any(isinstance(constant, type(self.state.func_id.code)) for constant in self.state.func_id.code.co_consts):
            whole.passes = passes
        else:
            whole = _Passes("milkrun_part")
            whole.passes = [(p, why) for p, why in passes if p not in NEEDLESS]
        whole.add_pass_after(_KnownNumbers, untyped_passes.IRProcessing)
        whole.finalize()
        return [whole]


_known: dict[Any, tuple[Any, Any]] = {}  # with what it was asked of, so that its id is not given to another


@contextmanager
def operators_known() -> Iterator[None]:
    """Within it, numba finds what an operator gives for the same types once, not at each place, where it tries up to
    some fifty definitions, twice. It holds numba's lock, so that no other compile meets this."""
    look_up = BaseFunction.get_call_type

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        flags = ConfigStack.top_or_none()
        if kws or flags is None or flags.fastmath or not all(isinstance(a, _PLAIN) for a in args):
            return look_up(self, context, args, kws)
        key = id(self), id(context), tuple(args), flags.nrt, flags.error_model
        if key not in _known:
            _known[key] = look_up(self, context, args, kws), self
        return _known[key][0]

    with global_compiler_lock:
        BaseFunction.get_call_type = get_call_type
        try:
            yield
        finally:
            BaseFunction.get_call_type = look_up


_PLAIN = (types.Number, types.Boolean, types.Array, types.BaseTuple, types.SliceType, types.NoneType)
"""Types by which alone the answer is decided; a function as an argument may be compiled anew."""
