"""The grammar of the Logs Insights query language, as far as the local cloud evaluates it (user guide: Logs Insights QL).

Anything else is refused, never ignored: an unknown command, function or clause is a `QuerySyntaxError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

__all__ = [
    "AGGREGATES",
    "FUNCTIONS",
    "Binary",
    "Bin",
    "Call",
    "Column",
    "Command",
    "Dedup",
    "Display",
    "Field",
    "Fields",
    "Filter",
    "In",
    "Like",
    "Limit",
    "Literal",
    "Negation",
    "Node",
    "Parse",
    "QuerySyntaxError",
    "Sort",
    "Stats",
    "parse_query",
]

MOST_ROWS = 10_000
"""The greatest limit."""

FUNCTIONS: Mapping[str, tuple[int, int]] = {
    "abs": (1, 1),
    "ceil": (1, 1),
    "coalesce": (1, 99),
    "concat": (1, 99),
    "floor": (1, 1),
    "frommillis": (1, 1),
    "greatest": (1, 99),
    "isblank": (1, 1),
    "isempty": (1, 1),
    "ispresent": (1, 1),
    "least": (1, 99),
    "log": (1, 1),
    "ltrim": (1, 1),
    "replace": (3, 3),
    "rtrim": (1, 1),
    "sqrt": (1, 1),
    "strcontains": (2, 2),
    "strlen": (1, 1),
    "substr": (2, 3),
    "tolower": (1, 1),
    "tomillis": (1, 1),
    "toupper": (1, 1),
    "trim": (1, 1),
}
"""Functions of one row -> least and greatest number of arguments. ``bin`` is one more."""
AGGREGATES: Mapping[str, tuple[int, int]] = {
    "avg": (1, 1),
    "count": (0, 1),
    "count_distinct": (1, 1),
    "earliest": (1, 1),
    "latest": (1, 1),
    "max": (1, 1),
    "median": (1, 1),
    "min": (1, 1),
    "pct": (2, 2),
    "stddev": (1, 1),
    "sum": (1, 1),
}
"""Functions of ``stats`` -> least and greatest number of arguments."""

_DEEPEST = 50
_BIN_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<span>\d+(?:ms|s|m|h|d|w|mo|q|y)\b)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<quoted>`[^`]+`)
    |(?P<name>[@A-Za-z_][@A-Za-z0-9_]*(?:\.[@A-Za-z0-9_]+)*)
    |(?P<symbol>=~|!=|<=|>=|[-+*/^%=<>(),|\[\]])""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "or", "not", "in", "like", "as", "by", "asc", "desc"})


class QuerySyntaxError(ValueError):
    """The text is no query that is evaluated here.

    Attributes:
        start: offset of the first character of what is wrong.
        end: offset after the last one.
    """

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start, self.end = start, end


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a text."""

    value: float | str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the row."""

    name: str


@dataclass(frozen=True, slots=True)
class Bin:
    """``bin(5m)``: the beginning of the span that ``@timestamp`` lies in."""

    milliseconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """A function's call; ``count(*)`` has no arguments."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """``not`` or ``-`` before something."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator of arithmetic, comparison or logic."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Like:
    """``like``: a text that is contained, or a pattern that is found."""

    operand: Node
    pattern: str | re.Pattern[str]


@dataclass(frozen=True, slots=True)
class In:
    """``in [...]``."""

    operand: Node
    items: tuple[Node, ...]


Node = Literal | Field | Bin | Call | Negation | Binary | Like | In


@dataclass(frozen=True, slots=True)
class Column:
    """An expression and the name of its column."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Fields:
    """``fields``: columns that are made and shown."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Display:
    """``display``: only these columns are shown."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """``filter``: rows for which the condition holds stay."""

    condition: Node


@dataclass(frozen=True, slots=True)
class Parse:
    """``parse``: groups of a pattern, the number of each with its name, become fields."""

    operand: Node
    pattern: re.Pattern[str]
    groups: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """``stats``: one row a group, with aggregates."""

    aggregates: tuple[Column, ...]
    groups: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    """``sort``: keys with whether they descend."""

    keys: tuple[tuple[Node, bool], ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """``limit``: at most so many rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class Dedup:
    """``dedup``: the first row of those with the same values."""

    fields: tuple[Field, ...]


Command = Fields | Display | Filter | Parse | Stats | Sort | Limit | Dedup


def parse_query(text: str) -> tuple[Command, ...]:
    """Parse a query: commands with ``|`` between them, ``#`` comments.

    Raises:
        QuerySyntaxError: with the place.
    """
    return _Parser(text).query()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._token = self._read()
        self._last_end = 0
        self._depth = 0

    # Tokens.

    def _read(self) -> _Token | None:
        while self._at < len(self._text):
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise QuerySyntaxError(f"unexpected {self._text[self._at]!r}", self._at, self._at + 1)
            start, self._at = self._at, match.end()
            assert match.lastgroup is not None
            if match.lastgroup != "space":
                return _Token(match.lastgroup, match[0], start, self._at)
        return None

    def _fail(self, expected: str) -> NoReturn:
        if self._token is None:
            raise QuerySyntaxError(f"the query ends where {expected} is expected", len(self._text), len(self._text))
        raise QuerySyntaxError(f"unexpected {self._token.text!r}: {expected} is expected", self._token.start, self._token.end)

    def _next(self) -> _Token:
        token = self._token
        if token is None:
            self._fail("more")
        self._last_end = token.end
        self._token = self._read()
        return token

    def _sees(self, *texts: str) -> str | None:
        token = self._token
        if token is not None and token.kind in ("symbol", "name") and token.text.lower() in texts:
            return token.text.lower()
        return None

    def _takes(self, *texts: str) -> str | None:
        seen = self._sees(*texts)
        if seen is not None:
            self._next()
        return seen

    def _expects(self, text: str) -> None:
        if not self._takes(text):
            self._fail(repr(text))

    def _pattern(self) -> re.Pattern[str]:
        """A regular expression between slashes, of which the first is the current token."""
        assert self._token is not None
        start, at = self._token.start, self._token.end
        while at < len(self._text) and self._text[at] != "/":
            at += 2 if self._text[at] == "\\" else 1
        if at >= len(self._text):
            raise QuerySyntaxError("the regular expression does not end with '/'", start, len(self._text))
        source = self._text[start + 1 : at].replace("\\/", "/")
        try:
            pattern = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", source))
        except re.error as error:
            raise QuerySyntaxError(f"the regular expression is not valid: {error}", start, at + 1) from None
        self._at = self._last_end = at + 1
        self._token = self._read()
        return pattern

    # Commands.

    def query(self) -> tuple[Command, ...]:
        commands = [self._command()]
        while self._takes("|"):
            if isinstance(commands[-1], Dedup) and self._sees("limit") is None:
                self._fail("limit (the only command that may follow dedup)")
            commands.append(self._command())
        if self._token is not None:
            self._fail("'|' or the end")
        return tuple(commands)

    def _command(self) -> Command:
        commands: Mapping[str, Callable[[], Command]] = {
            "fields": lambda: Fields(self._columns()),
            "display": lambda: Display(self._columns()),
            "filter": lambda: Filter(self._expression()),
            "parse": self._parse,
            "stats": self._stats,
            "sort": self._sort,
            "limit": self._limit,
            "dedup": lambda: Dedup(self._names()),
        }
        name = self._token.text.lower() if self._token is not None and self._token.kind == "name" else ""
        if name not in commands:
            self._fail(f"one of {', '.join(commands)}")
        self._next()
        return commands[name]()

    def _columns(self) -> tuple[Column, ...]:
        columns = [self._column(self._expression)]
        while self._takes(","):
            columns.append(self._column(self._expression))
        return tuple(columns)

    def _column(self, parse: Callable[[], Node]) -> Column:
        start = self._token.start if self._token is not None else len(self._text)
        node = parse()
        text = self._text[start : self._last_end].strip()
        if self._takes("as"):
            return Column(self._name(), node)
        return Column(node.name if isinstance(node, Field) else text, node)

    def _name(self) -> str:
        token = self._token
        if token is None or token.kind not in ("name", "quoted") or token.text.lower() in _KEYWORDS:
            self._fail("a name")
        self._next()
        return token.text.strip("`")

    def _names(self) -> tuple[Field, ...]:
        names = [Field(self._name())]
        while self._takes(","):
            names.append(Field(self._name()))
        return tuple(names)

    def _parse(self) -> Parse:
        token = self._token
        operand: Node = Field("@message")
        if token is not None and token.kind in ("name", "quoted"):
            operand = Field(self._name())
            token = self._token
        if self._sees("/"):
            pattern = self._pattern()
            if not pattern.groupindex:
                raise QuerySyntaxError("the regular expression of parse has no named group", token.start if token else 0, self._last_end)
            return Parse(operand, pattern, tuple((number, name) for name, number in pattern.groupindex.items()))
        if token is None or token.kind != "string":
            self._fail("a text with asterisks or a regular expression")
        self._next()
        glob = _unquoted(token.text)
        self._expects("as")
        names = [field.name for field in self._names()]
        if glob.count("*") != len(names):
            raise QuerySyntaxError(f"{glob.count('*')} asterisks have {len(names)} names", token.start, self._last_end)
        parts = glob.split("*")
        # The last asterisk takes the rest when nothing follows it.
        groups = ["(.*?)"] * (len(names) - 1) + ["(.*)" if not parts[-1] else "(.*?)"]
        source = "".join(re.escape(part) + group for part, group in zip(parts, [*groups, ""], strict=True))
        return Parse(operand, re.compile(source, re.DOTALL), tuple(enumerate(names, 1)))

    def _stats(self) -> Stats:
        aggregates = [self._column(self._aggregate)]
        while self._takes(","):
            aggregates.append(self._column(self._aggregate))
        groups: tuple[Column, ...] = ()
        if self._takes("by"):
            groups = self._columns()
        return Stats(tuple(aggregates), groups)

    def _aggregate(self) -> Node:
        start = self._token.start if self._token is not None else len(self._text)
        node = self._sum(aggregates=True)
        if not _is_aggregate(node):
            raise QuerySyntaxError(
                f"{self._text[start : self._last_end].strip()!r} is no aggregate: use {', '.join(AGGREGATES)}", start, self._last_end
            )
        return node

    def _sort(self) -> Sort:
        keys = []
        while True:
            node = self._sum()
            keys.append((node, self._takes("asc", "desc") == "desc"))
            if not self._takes(","):
                return Sort(tuple(keys))

    def _limit(self) -> Limit:
        token = self._token
        if token is None or token.kind != "number" or not token.text.isdecimal():
            self._fail("a number of rows")
        self._next()
        if not 1 <= int(token.text) <= MOST_ROWS:
            raise QuerySyntaxError(f"limit {token.text} is not between 1 and {MOST_ROWS}", token.start, token.end)
        return Limit(int(token.text))

    # Expressions, from the loosest operator to the closest.

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"less nesting than {_DEEPEST}")
        node = self._conjunction()
        while self._takes("or"):
            node = Binary("or", node, self._conjunction())
        self._depth -= 1
        return node

    def _conjunction(self) -> Node:
        node = self._negation()
        while self._takes("and"):
            node = Binary("and", node, self._negation())
        return node

    def _negation(self) -> Node:
        if not self._takes("not"):
            return self._comparison()
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"less nesting than {_DEEPEST}")
        node = Negation("not", self._negation())
        self._depth -= 1
        return node

    def _comparison(self) -> Node:
        node = self._sum()
        if self._sees("not"):
            self._next()
            if self._sees("like", "=~", "in") is None:
                self._fail("like or in")
            return Negation("not", self._membership(node))
        if self._sees("like", "=~", "in"):
            return self._membership(node)
        if operator := self._takes("=", "!=", "<", "<=", ">", ">="):
            return Binary(operator, node, self._sum())
        return node

    def _membership(self, node: Node) -> Node:
        if self._takes("in"):
            self._expects("[")
            items = [self._sum()]
            while self._takes(","):
                items.append(self._sum())
            self._expects("]")
            return In(node, tuple(items))
        self._next()
        if self._sees("/"):
            return Like(node, self._pattern())
        token = self._token
        if token is None or token.kind != "string":
            self._fail("a text or a regular expression")
        self._next()
        return Like(node, _unquoted(token.text))

    def _sum(self, *, aggregates: bool = False) -> Node:
        node = self._product(aggregates=aggregates)
        while operator := self._takes("+", "-"):
            node = Binary(operator, node, self._product(aggregates=aggregates))
        return node

    def _product(self, *, aggregates: bool) -> Node:
        node = self._power(aggregates=aggregates)
        while operator := self._takes("*", "/", "%"):
            node = Binary(operator, node, self._power(aggregates=aggregates))
        return node

    def _power(self, *, aggregates: bool) -> Node:
        node = self._primary(aggregates=aggregates)
        if self._takes("^"):
            return Binary("^", node, self._power(aggregates=aggregates))
        return node

    def _primary(self, *, aggregates: bool) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"less nesting than {_DEEPEST}")
        node = self._single(aggregates=aggregates)
        self._depth -= 1
        return node

    def _single(self, *, aggregates: bool) -> Node:
        if self._takes("-"):
            return Negation("-", self._primary(aggregates=aggregates))
        if self._takes("("):
            node = self._sum(aggregates=True) if aggregates else self._expression()
            self._expects(")")
            return node
        token = self._token
        if token is None or token.kind in ("symbol", "span") or token.text.lower() in _KEYWORDS:
            self._fail("a field, a value or a function")
        self._next()
        match token.kind:
            case "number":
                return Literal(float(token.text))
            case "string":
                return Literal(_unquoted(token.text))
            case "quoted":
                return Field(token.text.strip("`"))
        if self._takes("("):
            return self._call(token, aggregates=aggregates)
        if token.text.lower() in ("true", "false"):
            return Literal(float(token.text.lower() == "true"))
        return Field(token.text)

    def _call(self, token: _Token, *, aggregates: bool) -> Node:
        name = token.text.lower()
        if name == "bin":
            return self._bin()
        known = AGGREGATES if aggregates and name in AGGREGATES else FUNCTIONS
        if name not in known:
            where = "in stats only" if name in AGGREGATES else f"not known: use {', '.join(FUNCTIONS)}, bin"
            raise QuerySyntaxError(f"the function {token.text} is {where}", token.start, token.end)
        arguments: list[Node] = []
        if known is AGGREGATES and name == "count" and self._takes("*"):
            self._expects(")")
            return Call(name, ())
        if not self._takes(")"):
            inside_aggregate = aggregates and known is not AGGREGATES
            parse: Callable[[], Node] = (lambda: self._sum(aggregates=True)) if inside_aggregate else self._expression
            arguments.append(parse())
            while self._takes(","):
                arguments.append(parse())
            self._expects(")")
        least, most = known[name]
        if not least <= len(arguments) <= most:
            raise QuerySyntaxError(
                f"{name} takes {least if least == most else f'{least} to {most}'} arguments", token.start, self._last_end
            )
        self._check_percentile(name, arguments, token)
        return Call(name, tuple(arguments))

    def _check_percentile(self, name: str, arguments: list[Node], token: _Token) -> None:
        if name != "pct":
            return
        share = arguments[1]
        if not isinstance(share, Literal) or not isinstance(share.value, float) or not 0 <= share.value <= 100:
            raise QuerySyntaxError("the second argument of pct must be a number between 0 and 100", token.start, self._last_end)

    def _bin(self) -> Node:
        token = self._token
        if token is None or token.kind != "span":
            self._fail("a span such as 30s, 5m, 1h or 1d")
        self._next()
        self._expects(")")
        match = re.fullmatch(r"(\d+)([a-z]+)", token.text)
        assert match is not None
        if match[2] not in _BIN_SECONDS or int(match[1]) == 0:
            raise QuerySyntaxError(f"bin({token.text}) is not supported: use {', '.join(_BIN_SECONDS)}", token.start, token.end)
        return Bin(int(match[1]) * _BIN_SECONDS[match[2]] * 1000)


def _is_aggregate(node: Node) -> bool:
    """Whether every field in a node is inside of an aggregate, of which there is at least one."""
    return _aggregates_in(node) > 0


def _aggregates_in(node: Node) -> int:
    """Number of aggregates in a node; negative when a field is outside of them."""
    match node:
        case Call(function, arguments):
            if function in AGGREGATES:
                return 1
            counts = [_aggregates_in(argument) for argument in arguments]
        case Binary(_, left, right):
            counts = [_aggregates_in(left), _aggregates_in(right)]
        case Negation(_, operand):
            counts = [_aggregates_in(operand)]
        case Literal():
            return 0
        case _:
            return -1
    return -1 if any(count < 0 for count in counts) else sum(counts)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])
