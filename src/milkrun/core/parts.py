"""Kernels compiled as parts of the entries that call them, which halves the time of a first use.

Numba optimises each function together with all that it calls, and again in each caller. A part is only lowered to
LLVM code, and optimised once, in the entry that runs it. Single elements of a field are read and written at their
address, without an array. Both need internal classes of numba: without them `kernels.part_compiler` falls back to
ordinary functions, which compute the same (`tests/core/test_fallback.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from llvmlite.binding import Linkage
from numba import types
from numba.core import cgutils, ir, lowering, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.np.arrayobj import load_item, store_item

from milkrun.core.record import RecordType, Words


class _Lower(lowering.Lower):
    """Lowers `w.load[b, i]` to the address of that element. Numba would build the field's array first and test each
    index for being negative."""

    def extract_function_arguments(self) -> Any:
        values = super().extract_function_arguments()
        self._records = {
            name: Words(self.context, self.builder, self.typeof(f"arg.{name}"), value)
            for name, value in zip(self.func_ir.arg_names, values, strict=True)
            if isinstance(self.typeof(f"arg.{name}"), RecordType)
        }
        self._fields: dict[str, tuple[str, str]] = {}
        if not self.context.enable_boundscheck:  # which numba does in the array
            self._fields = find_indexed_fields(self.blocks, self.fndesc.typemap, self._records)
        return values

    def lower_inst(self, inst: Any) -> None:
        if isinstance(inst, ir.SetItem) and inst.target.name in self._fields:
            kinds = self.fndesc.calltypes[inst].args
            # In two steps, as in numba's own `setitem`: to the type of the statement, then to that of the field.
            value = self.loadvar(inst.value.name)
            value = self.context.cast(self.builder, value, self.typeof(inst.value.name), kinds[2])
            value = self.context.cast(self.builder, value, kinds[2], kinds[0].dtype)
            store_item(self.context, self.builder, kinds[0], value, self._address(inst.target.name, inst.index))
        elif not (isinstance(inst, ir.Assign) and inst.target.name in self._fields):  # such a variable needs no array
            super().lower_inst(inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if expr.op == "getitem" and expr.value.name in self._fields:
            kind = self.typeof(expr.value.name)
            found = load_item(self.context, self.builder, kind, self._address(expr.value.name, expr.index))
            return self.context.cast(self.builder, found, kind.dtype, resty)
        if expr.op == "getattr" and expr.value.name in self._records:
            words = self._records[expr.value.name]
            found = words.read(expr.attr)
            return self.context.cast(self.builder, found, words.record.type_of(expr.attr), resty)
        return super().lower_expr(resty, expr)

    def delvar(self, name: str) -> None:
        if name not in self._fields:
            super().delvar(name)

    def _address(self, name: str, index: Any) -> Any:
        record, attribute = self._fields[name]
        kind, value = self.typeof(index.name), self.loadvar(index.name)
        is_tuple = isinstance(kind, types.BaseTuple)
        kinds = kind.types if is_tuple else (kind,)
        values = cgutils.unpack_tuple(self.builder, value) if is_tuple else (value,)
        places = [
            self.context.cast(self.builder, v, k, types.intp if k.signed else types.uintp)
            for v, k in zip(values, kinds, strict=True)
        ]
        return self._records[record].element(attribute, places)


def find_indexed_fields(blocks: Any, typeof: Any, records: Any) -> dict[str, tuple[str, str]]:
    """The variables that hold a field's array and are used for single elements only, with their record and field."""
    made: Counter[str] = Counter()
    fields: dict[str, tuple[str, str]] = {}
    uses: Counter[str] = Counter()
    indexed: Counter[str] = Counter()
    for block in blocks.values():
        for inst in block.body:
            if isinstance(inst, ir.Del):
                continue
            value: Any = inst.value if isinstance(inst, ir.Assign) else None
            op = value.op if isinstance(value, ir.Expr) else ""
            if isinstance(inst, ir.Assign):
                made[inst.target.name] += 1
                if op == "getattr" and value.value.name in records:
                    if isinstance(typeof[inst.target.name], types.Array):
                        fields[inst.target.name] = value.value.name, value.attr
            uses.update(_names_in(inst if value is None else value))
            if op == "getitem" or isinstance(inst, ir.SetItem):
                array, index = (value.value, value.index) if op else (inst.target, inst.index)
                if is_single_element(typeof[array.name], typeof[index.name]):
                    indexed[array.name] += 1
    return {name: place for name, place in fields.items() if made[name] == 1 and uses[name] == indexed[name]}


def _names_in(part: Any) -> set[str]:
    """The variables that a statement or an expression uses."""
    if isinstance(part, ir.Var):
        return {part.name}
    return {v.name for v in part.list_vars()} if hasattr(part, "list_vars") else set()


def is_single_element(array: Any, index: Any) -> bool:
    """Whether an index of this type is a single element; a constant below 0 is left to numba."""
    places = index.types if isinstance(index, types.BaseTuple) else (index,)
    return (
        isinstance(array, types.Array)
        and len(places) == array.ndim
        and all(
            isinstance(p, types.Integer) and not (isinstance(p, types.Literal) and p.literal_value < 0) for p in places
        )
    )


class _Part(JITCodeLibrary):
    """The LLVM code of a kernel, not optimised, and the libraries that it calls."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """All that an entry needs for a call of this: the code of all parts that it reaches, linked once for each entry
        instead of once for each part."""
        whole = self._final_module.clone()
        reached = self._reached()
        for part in reached:
            if isinstance(part, _Part):
                whole.link_in(part._final_module, preserve=True)
        for library in reached:  # last, as LLVM drops functions without a call
            if not isinstance(library, _Part):
                whole.link_in(library._get_module_for_linking(), preserve=True)
        # As in numba: several libraries may bring the same part to an entry, of which LLVM keeps one.
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
    """Lowers a kernel to a part, and registers it for its callers."""

    _name = "milkrun_part_lowering"
    lowering_class = _Lower

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        state["cr"] = state.cr._replace(cfunc=state.library)  # how numba identifies compiled code
        state.targetctx.insert_user_function(state.library, state.cr.fndesc, [state.library])
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _KnownNumbers(FunctionPass):
    """Replaces reads of known numbers of a record by constants, so that numba prunes branches for other values."""

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
                        # Numba prunes branches by these definitions, not by the statements.
                        state.func_ir._definitions[found.target.name] = [found.value]
        return True


def _knows(kind: Any) -> bool:
    return isinstance(kind, RecordType) and bool(kind.known)


class PartCompiler(CompilerBase):
    """Numba's passes with the lowering of this file."""

    lowering: tuple[Any, ...] = ()
    """The functions that the code of a part depends on besides the kernel, for the fingerprint of the cache."""

    def define_pipelines(self) -> list[PassManager]:
        whole = DefaultPassBuilder.define_nopython_pipeline(self.state, "milkrun_part")
        native = typed_passes.NativeLowering
        whole.passes = [(_PartLowering if p is native else p, why) for p, why in whole.passes]
        whole.add_pass_after(_KnownNumbers, untyped_passes.IRProcessing)
        whole.finalize()
        return [whole]


PartCompiler.lowering = tuple(
    f for f in (*vars(_Lower).values(), find_indexed_fields, is_single_element) if callable(f)
)
