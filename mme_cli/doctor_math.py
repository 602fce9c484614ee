"""The part of CloudWatch's metric math that the shared rules use, over series in memory. Pure.

Source: Amazon CloudWatch, Using math expressions with CloudWatch metrics. Supported: numbers, series by name, ``+ - * /``, comparisons
(1 or 0), ``IF(condition, then, otherwise)`` and ``DIFF(series)``. As there, a value that depends on missing data is missing.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

__all__ = ["Values", "evaluate"]

Values = Mapping[int, float]
"""Start of a period, epoch seconds -> value."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def evaluate(expression: str, series: Mapping[str, Values]) -> dict[int, float]:
    """The expression's value in every period that has one.

    Args:
        expression: metric math over the names of ``series``.
        series: name -> values.

    Raises:
        ValueError: the expression uses something that is not supported, or a name that is not there.
    """
    tree = ast.parse(expression, mode="eval").body
    times = sorted({time for values in series.values() for time in values})
    results = ((time, _value(tree, series, time)) for time in times)
    return {time: value for time, value in results if value is not None}


def _value(node: ast.expr, series: Mapping[str, Values], time: int) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in series:
            return series[name].get(time)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, series, time)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            one, other = _value(left, series, time), _value(right, series, time)
            if one is None or other is None or (isinstance(op, ast.Div) and other == 0):
                return None
            return _ARITHMETIC[type(op)](one, other)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            one, other = _value(left, series, time), _value(right, series, time)
            return None if one is None or other is None else float(_COMPARISONS[type(op)](one, other))
        case ast.Call(func=ast.Name(id="IF"), args=[condition, then, otherwise]):
            decision = _value(condition, series, time)
            return None if decision is None else _value(then if decision else otherwise, series, time)
        case ast.Call(func=ast.Name(id="DIFF"), args=[ast.Name(id=name)]) if name in series:
            return _difference(series[name], time)
    raise ValueError(f"metric math {ast.unparse(node)!r} is not supported: use series, numbers, + - * /, comparisons, IF and DIFF")


def _difference(values: Values, time: int) -> float | None:
    earlier = [moment for moment in values if moment < time]
    if time not in values or not earlier:
        return None
    return values[time] - values[max(earlier)]
