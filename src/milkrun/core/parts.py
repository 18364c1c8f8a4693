"""Kernels as parts of the entries that call them: what makes their first use cheap. It leans on classes inside numba.

Numba optimises each function and makes machine code of it together with all that it calls, and its callers again. A
part is only translated, and optimised once, inside the entry that runs it. It is translated by those of numba's passes
that change a kernel. What numba does while it compiles an entry is made quicker in `quick_numba.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite.binding import Linkage
from numba import types
from numba.core import ir, lowering, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, PassManager, _pass_registry, register_pass
from numba.core.transforms import canonicalize_cfg
from numba.np.arrayobj import load_item, store_item

from milkrun.core.quick_numba import CALLS
from milkrun.core.record import WORD, RecordType, Words

NEEDLESS = frozenset(
    {
        untyped_passes.WithLifting,
        untyped_passes.InlineClosureLikes,
        untyped_passes.RewriteDynamicRaises,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.InlineInlinables,
        untyped_passes.FindLiterallyCalls,
        untyped_passes.LiteralUnroll,
        untyped_passes.LiteralPropagationSubPipelinePass,
        typed_passes.NopythonRewrites,
        typed_passes.NoPythonSupportedFeatureValidation,
        typed_passes.DumpParforDiagnostics,
        typed_passes.IRLegalization,
    }
)
"""Passes for what kernels do not have: `with`, raised errors, closures, containers of mixed types, array expressions,
objects to be let go of.
A kernel that has a function inside goes through all passes."""


class _Lower(lowering.Lower):
    """Translates a kernel with less code than numba: one number of a record's field is read or written at its address,
    where numba makes an array of the field and looks for a negative index; and what is no longer needed stays as it
    is, since nothing is counted that refers to it."""

    def _find_singly_assigned_variable(self) -> None:
        """Numba's list of variables that need no place in memory, and ours of those that need not be made."""
        self._indexed = _look_through(self.blocks, self.fndesc.typemap)
        self._singly_assigned_vars = self._indexed.local
        self._blk_local_varmap: dict[str, Any] = {}
        self._records: dict[str, Words] = {}
        self._places: dict[str, list[Any]] = {}
        self._loops: dict[str, tuple[Any, Any]] = {}

    def extract_function_arguments(self) -> Any:
        values = super().extract_function_arguments()
        for name, value in zip(self.func_ir.arg_names, values, strict=True):
            kind = self.typeof(f"arg.{name}")
            if isinstance(kind, RecordType):
                self._records[name] = Words(self.context, self.builder, kind, value)
        return values

    def lower_inst(self, inst: Any) -> None:
        if isinstance(inst, ir.Del):
            return
        if isinstance(inst, ir.SetItem) and inst.target.name in self._indexed.fields:
            kinds = self.fndesc.calltypes[inst].args
            # In two steps, as numba's own `setitem`: first to the type of the statement, then to that of the field.
            value = self.loadvar(inst.value.name)
            value = self.context.cast(self.builder, value, self.typeof(inst.value.name), kinds[2])
            value = self.context.cast(self.builder, value, kinds[2], kinds[0].dtype)
            store_item(self.context, self.builder, kinds[0], value, self._address(inst.target.name, inst.index))
            return
        if isinstance(inst, ir.Assign):
            name = inst.target.name
            if name in self._indexed.loops:
                self._loops[name] = self._loop(inst.value)
                return
            if name in self._indexed.tuples:
                self._places[name] = [self._index(item) for item in inst.value.items]
            if name in self._indexed.fields or name in self._indexed.needless:
                return
        super().lower_inst(inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if expr.op == "getitem" and expr.value.name in self._indexed.fields:
            kind = self.typeof(expr.value.name)
            found = load_item(self.context, self.builder, kind, self._address(expr.value.name, expr.index))
            return self.context.cast(self.builder, found, kind.dtype, resty)
        if expr.op == "getattr" and expr.value.name in self._records:
            words = self._records[expr.value.name]
            found = words.read(expr.attr)
            return self.context.cast(self.builder, found, words.record.type_of(expr.attr), resty)
        if expr.op in ("pair_first", "pair_second") and expr.value.name in self._loops:
            i, goes_on = self._loops[expr.value.name]
            return goes_on if expr.op == "pair_second" else self.context.cast(self.builder, i, types.int64, resty)
        return super().lower_expr(resty, expr)

    def _loop(self, step: Any) -> tuple[Any, Any]:
        """A step of `for i in range(start, stop)`: the range, its iterator (the addresses of i and of how many are
        left) and its next (i, and whether there is one). Numba asks for the sign of the step and whether it is 0."""
        builder = self.builder
        if isinstance(step, ir.Var):
            return self._loops[step.name]
        if step.op == "call":
            numbers = [self._index(arg) for arg in step.args]
            return numbers[-2] if len(numbers) == 2 else WORD(0), numbers[-1]
        first, second = self._loops[step.value.name]
        if step.op == "getiter":
            # In the entry block: elsewhere a loop inside of a loop would take more of the stack each time it begins.
            with builder.goto_entry_block():
                place, left = builder.alloca(WORD), builder.alloca(WORD)
            builder.store(first, place)
            builder.store(builder.sub(second, first), left)
            return place, left
        i, count = builder.load(first), builder.load(second)
        builder.store(builder.add(i, WORD(1)), first)
        # nsw, as in numba's own range: LLVM may reckon how often the loop runs.
        builder.store(builder.sub(count, WORD(1), flags=["nsw"]), second)
        return i, builder.icmp_signed(">", count, WORD(0))

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def _address(self, name: str, index: Any) -> Any:
        record, attribute = self._indexed.fields[name]
        places = self._places.get(index.name) or [self._index(index)]
        return self._records[record].element(attribute, places)

    def _index(self, var: Any) -> Any:
        kind = self.typeof(var.name)
        whole = types.intp if kind.signed else types.uintp
        return self.context.cast(self.builder, self.loadvar(var.name), kind, whole)


class _Indexed(NamedTuple):
    """Variables of a kernel: those that are made once and used in the same block only, or made in the first block,
    after which all others come; and those that need not be made: `w.load` of `w.load[b, i]`, (b, i), a kernel that is
    only called, and what a loop counts with."""

    local: set[str]
    fields: dict[str, tuple[str, str]]
    tuples: set[str]
    needless: set[str]  # of the tuples, and kernels
    loops: set[str]  # ranges of step 1, their iterators and what these give


def _look_through(blocks: Any, typeof: Any) -> _Indexed:
    """A field need not be made if its only use is with as many whole numbers as it has axes."""
    made: set[str] = set()
    first: set[str] = set()
    shared: set[str] = set()  # made twice, or used where it was not made
    needed: set[str] = set()
    fields: dict[str, tuple[str, str]] = {}
    tuples: set[str] = set()
    kernels: set[str] = set()
    loops: set[str] = set()
    odd = False  # a loop's variable is used otherwise
    used: list[tuple[str, str]] = []
    # By their labels: the entry block comes first, and a range before the loop that goes over it.
    for _, block in sorted(blocks.items()):
        here: set[str] = set()
        for inst in block.body:
            is_made = isinstance(inst, ir.Assign)
            value: Any = getattr(inst, "value", None)
            op = value.op if is_made and isinstance(value, ir.Expr) else ""
            names = _names_in(value if is_made else inst)
            shared |= names - here - first
            if is_made and _is_loop(value, loops, typeof):
                odd |= inst.target.name in loops
                loops.add(inst.target.name)
            elif (names & loops and op not in ("pair_first", "pair_second")) or (is_made and inst.target.name in loops):
                odd = True
            if op == "getitem" or isinstance(inst, ir.SetItem):
                array, index = (value.value, value.index) if op else (inst.target, inst.index)
                if _one_number(typeof[array.name], typeof[index.name], index.name in tuples & here):
                    used.append((array.name, index.name))
                    names -= {array.name, index.name}
            elif op == "call" and value.func.name in kernels:
                names = {v.name for v in value._rec_list_vars((value.args, value.kws, value.vararg))}
            needed |= names
            if is_made:
                target = inst.target.name
                if target in made:
                    shared.add(target)
                made.add(target)
                here.add(target)
                if op == "getattr" and isinstance(typeof[value.value.name], RecordType):
                    if isinstance(typeof[target], types.Array):
                        fields[target] = value.value.name, value.attr
                elif op == "build_tuple" and all(isinstance(k, types.Integer) for k in typeof[target]):
                    tuples.add(target)
                elif isinstance(value, (ir.Global, ir.FreeVar)) and isinstance(typeof[target], types.Dispatcher):
                    kernels.add(target)
        first = first or here
    local = made - shared
    fields = {name: place for name, place in fields.items() if name in local and name not in needed}
    needed.update(index for array, index in used if array not in fields)
    return _Indexed(local, fields, tuples, (tuples & local | kernels) - needed, set() if odd else loops)


def _is_loop(value: Any, loops: set[str], typeof: Any) -> bool:
    """Whether a value is `range(stop)` or `range(start, stop)`, or comes of such a one on its way to the loop."""
    if isinstance(value, ir.Var):
        return value.name in loops
    op = getattr(value, "op", "")
    if op != "call":
        return op in ("getiter", "iternext") and value.value.name in loops
    return (
        getattr(typeof[value.func.name], "typing_key", None) is range
        and len(value.args) < 3
        and not value.kws
        and not value.vararg
        and all(isinstance(typeof[arg.name], types.Integer) for arg in value.args)
        and all(typeof[arg.name].signed for arg in value.args)
    )


def _names_in(part: Any) -> set[str]:
    """The variables that a statement or an expression uses."""
    if isinstance(part, ir.Var):
        return {part.name}
    return {v.name for v in part.list_vars()} if hasattr(part, "list_vars") else set()


def _one_number(array: Any, index: Any, is_made_here: bool) -> bool:
    """Whether an index of this type is one number of an array; a constant below 0 is left to numba."""
    places = index.types if is_made_here else (index,)
    return (
        isinstance(array, types.Array)
        and len(places) == array.ndim
        and all(
            isinstance(p, types.Integer) and not (isinstance(p, types.Literal) and p.literal_value < 0) for p in places
        )
    )


class _Part(JITCodeLibrary):
    """The code of a kernel and of what it calls, as it was translated."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """All that an entry needs for a call of this. What parts call is put together here, once for each entry, and
        not at each of them, for its callers to do it again."""
        whole = self._final_module.clone()
        reached = self._reached()
        for part in reached:
            if isinstance(part, _Part):
                whole.link_in(part._final_module, preserve=True)
        for library in reached:  # now that all calls are there: LLVM leaves out what nobody calls
            if not isinstance(library, _Part):
                whole.link_in(library._get_module_for_linking(), preserve=True)
        # As numba does it: several libraries may bring the same part to one entry, and LLVM then keeps one of them.
        for function in whole.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"
        return whole

    def _reached(self) -> dict[Any, None]:
        found: dict[Any, None] = {}
        ahead = list(self._linking_libraries)
        while ahead:
            library = ahead.pop()
            if library is not self and library not in found:
                found[library] = None
                ahead += library._linking_libraries if isinstance(library, _Part) else []
        return found


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(typed_passes.NativeLowering):
    """Translates a kernel into a part, and tells numba that callers find its code there."""

    _name = "milkrun_part_lowering"
    lowering_class = _Lower

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
                        # Numba prunes branches by these definitions, not by the statement.
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

    lowering: tuple[Any, ...] = ()
    """What the code of a part depends on besides the kernel."""

    def define_pipelines(self) -> list[PassManager]:
        whole = DefaultPassBuilder.define_nopython_pipeline(self.state, "milkrun_part")
        native = typed_passes.NativeLowering
        passes = [(_PartLowering if p is native else p, why) for p, why in whole.passes]
        if any(isinstance(constant, type(self.state.func_id.code)) for constant in self.state.func_id.code.co_consts):
            whole.passes = passes
        else:
            whole = _Passes("milkrun_part")
            whole.passes = [(p, why) for p, why in passes if p not in NEEDLESS]
        whole.add_pass_after(_KnownNumbers, untyped_passes.IRProcessing)
        whole.finalize()
        return [whole]


PartCompiler.lowering = tuple(
    f for f in (*vars(_Lower).values(), _look_through, _one_number, _is_loop, *CALLS) if callable(f)
)
