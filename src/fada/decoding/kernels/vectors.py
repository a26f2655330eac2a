"""What numba has no word for: bits that are counted, and many numbers at once; compiled."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 16
"""Numbers that are looked at at once."""
AHEAD = 1024
"""So many numbers further on are fetched: by itself, the processor does not go beyond a page of memory."""


def _counted_zeros(typing_context: Any, number: Any) -> Any:
    """How many 0 follow the last 1 in the bits of an int64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.int64), generate


trailing_zeros: Any = intrinsic(_counted_zeros)


def _counted_ones(typing_context: Any, number: Any) -> Any:
    """How many 1 are among the bits of an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


ones: Any = intrinsic(_counted_ones)


def _prefetch(builder: Any, place: Any) -> None:
    byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    to_read, often, data = (ir.Constant(whole, number) for number in (0, 3, 1))
    builder.call(fetch, [builder.bitcast(place, byte), to_read, often, data])


def _fetched(typing_context: Any, place: Any) -> Any:
    """Ask the processor to have at hand soon what is pointed to."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _prefetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(place), generate


fetch: Any = intrinsic(_fetched)


def _block_of(builder: Any, kind: Any, value: Any) -> Any:
    """BLOCK times the same."""
    none = ir.Constant(ir.VectorType(kind, BLOCK), ir.Undefined)
    first = builder.insert_element(none, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK))


def _loaded_block(builder: Any, start: Any) -> Any:
    """BLOCK numbers that are pointed to."""
    kind = start.type.pointee
    return builder.load(builder.bitcast(start, ir.VectorType(kind, BLOCK).as_pointer()), align=4)


def _compared_block(typing_context: Any, values: Any, least: Any) -> Any:
    """Which of BLOCK float64 that are pointed to are at least `least`, as bits of an int64: the first is the lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        same = _block_of(builder, ir.DoubleType(), arguments[1])
        reached = builder.fcmp_ordered(">=", _loaded_block(builder, arguments[0]), same)
        return builder.zext(builder.bitcast(reached, ir.IntType(BLOCK)), ir.IntType(64))

    return types.int64(values, types.float64), generate


reaching: Any = intrinsic(_compared_block)


def _exponential_sum(typing_context: Any, values: Any, many: Any) -> Any:
    """Σ exp of so many numbers that are pointed to, at least BLOCK, at most 6 % too high; huge if one of them is NaN or
    +inf.

    The bits of a float32 are its base-2 logarithm, linearly interpolated: writing x / log 2 there gives exp(x).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single, whole = ir.FloatType(), ir.IntType(32)
        singles, wholes = ir.VectorType(single, BLOCK), ir.VectorType(whole, BLOCK)
        start, size = arguments

        def all_of(value: float) -> Any:
            return ir.Constant(singles, [ir.Constant(single, value)] * BLOCK)

        def exponentials(first: Any) -> Any:
            x = _loaded_block(builder, builder.gep(start, [first]))
            x = x if x.type == singles else builder.fptrunc(x, singles)
            x = builder.select(builder.fcmp_ordered("<=", x, all_of(88.0)), x, all_of(88.0))
            x = builder.select(builder.fcmp_ordered(">=", x, all_of(-87.0)), x, all_of(-87.0))
            bits = builder.fptosi(builder.fadd(builder.fmul(x, all_of(12102203.0)), all_of(1065353216.0)), wholes)
            return builder.bitcast(bits, singles)

        # The last block ends with the last number; what it shares with the one before counts there.
        last = builder.sub(size, context.get_constant(types.int64, BLOCK))
        shared = builder.trunc(builder.and_(builder.neg(size), context.get_constant(types.int64, BLOCK - 1)), whole)
        counted = builder.icmp_signed(">=", ir.Constant(wholes, list(range(BLOCK))), _block_of(builder, whole, shared))
        total = cgutils.alloca_once_value(builder, builder.select(counted, exponentials(last), all_of(0.0)))
        step = context.get_constant(types.int64, BLOCK)
        with cgutils.for_range_slice(builder, context.get_constant(types.int64, 0), last, step) as (first, _):
            _prefetch(builder, builder.gep(start, [builder.add(first, context.get_constant(types.int64, AHEAD))]))
            builder.store(builder.fadd(builder.load(total), exponentials(first)), total)
        kind = ir.FunctionType(single, [single, singles])
        reduced = builder.module.declare_intrinsic(f"llvm.vector.reduce.fadd.v{BLOCK}f32", fnty=kind)
        return builder.call(reduced, [ir.Constant(single, 0.0), builder.load(total)], fastmath=["reassoc"])

    return types.float32(values, types.int64), generate


exponential_sum: Any = intrinsic(_exponential_sum)
