"""Pickles followed opcode by opcode, as a stream: what they import, without loading anything.

The walk keeps what decides about imports and about where the arrays of joblib lie: short texts, imported names, small tuples and
dictionaries. Everything else is one opaque value, so memory stays bounded whatever the pickle holds. Where the walk cannot tell what
an unpickler would do, it gives up (`Unclear`), so that nothing is admitted that was not seen.

Sources: Lib/pickletools.py (opcodes, their arguments and their effect on the stack), Lib/pickle.py, joblib/numpy_pickle.py.
"""

from __future__ import annotations

import pickletools
import re
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from mme_tenancy.formats.content import ContentFault

__all__ = ["Imported", "PickleWalk", "Unclear"]

Imported = tuple[str, str]
"""Module and name of what a pickle imports."""

_Steps = Generator[int, bytes, None]
_Asked = Generator[int, bytes, bytes]
_PROTOCOLS = range(2, 6)
_MAX_IMPORTS = 2000
_MAX_STACK = 20_000
_MAX_LINE_BYTES = 1024
_KEPT_TEXT_BYTES = 256
_KEPT_ITEMS = 16
_RECENT = 20_000
"""So many of the newest texts are remembered by their place in the pickle's memo; names that were imported and types of arrays always."""
_MAX_TYPES = 20_000
_MAX_ARRAYS = 200_000
_DTYPE = re.compile(r"([biufcmMSUVO])(\d{1,9})")
_HAS_OBJECT = 1
_ARRAY = ("joblib.numpy_pickle", "NumpyArrayWrapper")
_ARRAY_STATE = frozenset({"shape", "dtype", "numpy_array_alignment_bytes"})
_HARMLESS_STATE = frozenset({"subclass", "order", "allow_mmap"})
"""Anything else in the wrapper's state could take the place of one of its methods, such as the one that reads the array's bytes."""
_LONGEST_ARRAY_BYTES = 1 << 50


class Unclear(ContentFault):
    """What the file would import, or where an unpickler would read on, cannot be told; ``detail`` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, "unscanned-code")


class _Opaque:
    """A value that decides nothing."""


class _Mark(_Opaque):
    """The mark on the stack."""


@dataclass(slots=True)
class _Text:
    """A short text, and where the memo has it."""

    value: str
    places: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class _Name:
    """An imported class or function."""

    imported: Imported


@dataclass(slots=True)
class _Dtype:
    """The type of an array's items."""

    kind: str
    item_bytes: int
    has_object: bool


@dataclass(slots=True, weakref_slot=True)
class _Dictionary:
    """A dictionary, of which only what describes an array is kept; ``unsure`` once it may hold what the walk did not see."""

    items: dict[str, object] = field(default_factory=dict)
    unsure: bool = False


class _Array:
    """What joblib writes in front of an array's bytes."""


_OPAQUE, _MARK = _Opaque(), _Mark()
_Leaf = (int, _Text, _Name, _Dtype, type(None))


class PickleWalk:
    """Follows one pickle.

    Args:
        joblib: whether the file is read by ``joblib.load``, which finds arrays between the opcodes; otherwise such a pickle is unclear.

    Attributes:
        imports: what it imports, in the order of first use.
    """

    def __init__(self, *, joblib: bool = False) -> None:
        self._joblib = joblib
        self.imports: dict[Imported, None] = {}

    def follow(self) -> _Steps:
        """The parser, for `mme_tenancy.formats.content.Pull`; ends behind the pickle's last opcode. Raises `ContentFault` and `Unclear`."""
        yield from _Machine(self.imports, joblib=self._joblib).run()


class _Machine:
    """The stack, the memo and the position of one pickle."""

    def __init__(self, imports: dict[Imported, None], *, joblib: bool) -> None:
        self._imports, self._joblib = imports, joblib
        self._stack: list[object] = []
        self._recent: OrderedDict[int, _Text] = OrderedDict()
        self._kept: dict[int, object] = {}
        self._arrays: set[int] = set()
        # Those on the stack only: what left it comes back as an opaque value, which describes no array.
        self._dictionaries: WeakValueDictionary[int, _Dictionary] = WeakValueDictionary()
        self._memo_size, self._sparse = 0, False
        self.position = self._frame_end = 0
        self._array_state: Mapping[str, object] = {}

    def run(self) -> _Steps:
        """Follow the opcodes until STOP."""
        code, argument = yield from self._next()
        if code.name != "PROTO" or not argument or argument[0] not in _PROTOCOLS:
            raise ContentFault("the file is not a pickle of protocol 2 to 5")
        while code.name != "STOP":
            code, argument = yield from self._next()
            special = _SPECIAL.get(code.name)
            if special is not None:
                special(self, argument)
            else:
                self.general(code)
            if code.name == "BUILD" and isinstance(self._stack[-1], _Array):
                yield from self._skip_array()
            if len(self._stack) > _MAX_STACK:
                raise Unclear(f"the pickle needs a stack of more than {_MAX_STACK} values")
        if self._stack:
            raise ContentFault("the pickle does not end with one value")

    # -- reading ----------------------------------------------------------------------------------------------------------------------

    def _next(self) -> Generator[int, bytes, tuple[pickletools.OpcodeInfo, bytes]]:
        """The next opcode and its argument as bytes; long arguments come empty."""
        found = _CODES.get((yield 1))
        self.position += 1
        if found is None:
            raise ContentFault("the file is not a pickle: it has an unknown opcode")
        if found.arg is None:
            return found, b""
        size = found.arg.n
        if size == pickletools.UP_TO_NEWLINE:
            line = yield from self._line()
            if found.arg.name == "stringnl_noescape_pair":
                line += b"\n" + (yield from self._line())
            return found, line
        if size < 0:
            raw = yield from self._take(_COUNT_BYTES[size])
            size = int.from_bytes(raw, "little", signed=size == pickletools.TAKEN_FROM_ARGUMENT4)
            if size < 0:
                raise ContentFault("the pickle has a negative length")
            if size > _KEPT_TEXT_BYTES:
                self.position += size
                yield -size
                return found, b""
        return found, (yield from self._take(size))

    def _take(self, size: int) -> _Asked:
        self.position += size
        return (yield size) if size else b""

    def _line(self) -> _Asked:
        line = bytearray()
        while (byte := (yield 1)) != b"\n":
            line += byte
            if len(line) > _MAX_LINE_BYTES:
                raise Unclear(f"the pickle has a line of more than {_MAX_LINE_BYTES} bytes")
        self.position += len(line) + 1
        return bytes(line)

    def _skip_array(self) -> _Steps:
        """Behind a BUILD of joblib's wrapper lie the array's bytes, or a pickle of its own if the array holds objects."""
        array = self._stack.pop()
        assert isinstance(array, _Array)
        self._stack.append(_OPAQUE)
        state = self._array_state
        shape, dtype = state.get("shape"), state.get("dtype")
        if self.position < self._frame_end:
            raise Unclear("an array of joblib lies inside a frame of opcodes")
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
            raise Unclear("type or shape of an array of joblib cannot be told")
        if dtype.has_object:
            inner = _Machine(self._imports, joblib=False)
            inner.position = self.position
            yield from inner.run()
            self.position = inner.position
            return
        size = dtype.item_bytes
        for length in shape:
            if not isinstance(length, int) or length < 0:
                raise Unclear("the shape of an array of joblib cannot be told")
            size *= length
        if size > _LONGEST_ARRAY_BYTES:
            raise ContentFault("an array of joblib is larger than any file")
        if state.get("numpy_array_alignment_bytes") is not None:
            padding = (yield from self._take(1))[0]
            yield from self._take(padding)
        if size:
            self.position += size
            yield -size

    # -- the stack --------------------------------------------------------------------------------------------------------------------

    def pop(self) -> object:
        if not self._stack or self._stack[-1] is _MARK:
            raise ContentFault("the pickle takes more from its stack than there is")
        return self._stack.pop()

    def drop(self, _argument: bytes) -> None:
        """POP, which takes a mark, too."""
        if not self._stack:
            raise ContentFault("the pickle takes more from its stack than there is")
        _give_away(self._stack.pop())

    def pop_mark(self) -> list[object]:
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                items = self._stack[place + 1 :]
                del self._stack[place:]
                return items
        raise ContentFault("the pickle lacks a mark")

    def push(self, value: object) -> None:
        self._stack.append(value)

    def general(self, code: pickletools.OpcodeInfo) -> None:
        """Any opcode by its effect on the stack alone."""
        before, after = code.stack_before, code.stack_after
        if pickletools.markobject in before:
            taken = self.pop_mark()
            taken += [self.pop() for _ in range(before.index(pickletools.markobject))]
        else:
            taken = [self.pop() for _ in before]
        for value in taken:
            _give_away(value)
        self._stack.extend([_OPAQUE] * len(after))

    # -- opcodes that decide something ------------------------------------------------------------------------------------------------

    def frame(self, argument: bytes) -> None:
        self._frame_end = self.position + int.from_bytes(argument, "little")

    def text(self, argument: bytes) -> None:
        try:
            self.push(_Text(argument.decode("utf-8", "surrogatepass")) if argument else _OPAQUE)
        except UnicodeDecodeError as error:
            raise ContentFault("the pickle has a text that is not UTF-8") from error

    def integer(self, argument: bytes) -> None:
        self.push(int.from_bytes(argument, "little", signed=len(argument) == 4))

    def long_integer(self, argument: bytes) -> None:
        self.push(int.from_bytes(argument, "little", signed=True) if len(argument) <= 9 else _OPAQUE)

    def constant(self, value: object) -> None:
        self.push(value)

    def new_tuple(self, items: list[object]) -> None:
        for item in items:
            _give_away(item)
        self.push(tuple(_leaf(item) for item in items) if len(items) <= _KEPT_ITEMS else _OPAQUE)

    def set_items(self, items: list[object]) -> None:
        for item in items:
            _give_away(item)
        target = self.pop()
        if isinstance(target, _Dictionary):
            for key, value in zip(items[::2], items[1::2], strict=False):
                if isinstance(key, _Text) and key.value in _ARRAY_STATE:
                    target.items[key.value] = value if isinstance(value, tuple) else _leaf(value)
                elif not isinstance(key, _Text) or key.value not in _HARMLESS_STATE:
                    target.unsure = True
        else:
            _give_away(target)
        self.push(target)

    def new_dictionary(self, items: list[object]) -> None:
        self.push(_Dictionary())
        self.set_items(items)

    def import_name(self, module: object, name: object) -> None:
        if not isinstance(module, _Text) or not isinstance(name, _Text):
            raise Unclear("the pickle imports something by a name that it computes")
        for text in (module, name):
            for place in text.places:  # a name that was used is used again, if the memo still has it there
                if self._recent.get(place) is text:
                    self._kept[place] = self._recent.pop(place)
        imported = (module.value, name.value)
        self._imports[imported] = None
        if len(self._imports) > _MAX_IMPORTS:
            raise Unclear(f"the pickle imports more than {_MAX_IMPORTS} names")
        if imported[1].endswith("ArrayWrapper") and (imported != _ARRAY or not self._joblib):
            raise Unclear("the pickle holds arrays as joblib writes them, but the file is not read by joblib: name it .joblib")
        self.push(_Name(imported))

    def import_line(self, argument: bytes) -> None:
        try:
            module, name = argument.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise Unclear("the pickle imports something by a name that is not UTF-8") from error
        self.import_name(_Text(module), _Text(name))

    def import_stack(self, _argument: bytes) -> None:
        name, module = self.pop(), self.pop()
        self.import_name(module, name)

    def import_and_call(self, argument: bytes) -> None:
        for item in self.pop_mark():
            _give_away(item)
        self.import_line(argument)
        _give_away(self.pop())
        self.push(_OPAQUE)

    def extension(self, _argument: bytes) -> None:
        raise Unclear("the pickle imports something by a number of the extension registry")

    def new_object(self, _argument: bytes) -> None:
        arguments, cls = self.pop(), self.pop()
        if cls == _Name(_ARRAY) and arguments == ():
            self.push(_Array())
            return
        _give_away(cls)
        _give_away(arguments)
        self.push(_OPAQUE)

    def reduce(self, _argument: bytes) -> None:
        arguments, called = self.pop(), self.pop()
        _give_away(called)
        _give_away(arguments)
        self.push(_dtype(arguments) if called == _Name(("numpy", "dtype")) else _OPAQUE)

    def build(self, _argument: bytes) -> None:
        state = self.pop()
        target = self._stack[-1] if self._stack else None
        if isinstance(target, _Array) and isinstance(state, _Dictionary) and not state.unsure:
            self._array_state = state.items
            return
        _give_away(state)
        if isinstance(target, _Array):
            raise Unclear("type and shape of an array of joblib cannot be told")
        if isinstance(target, _Dtype):
            _build_dtype(target, state)
        elif target is None or target is _MARK:
            raise ContentFault("the pickle takes more from its stack than there is")

    def duplicate(self, _argument: bytes) -> None:
        value = self.pop()
        _give_away(value)
        self._stack += [value, value]

    # -- the memo ---------------------------------------------------------------------------------------------------------------------

    def memoize(self, _argument: bytes) -> None:
        if self._sparse:
            raise Unclear("the pickle mixes ways to count what it remembers")
        self.put(self._memo_size)

    def put(self, place: int) -> None:
        if not self._stack:
            raise ContentFault("the pickle takes more from its stack than there is")
        if place == self._memo_size:
            self._memo_size += 1
        elif place > self._memo_size:
            self._sparse = True
        value = self._stack[-1]
        self._arrays.discard(place)
        self._kept.pop(place, None)
        self._recent.pop(place, None)
        self._dictionaries.pop(place, None)
        if isinstance(value, _Array):
            self._arrays.add(place)
        elif isinstance(value, _Dictionary):
            self._dictionaries[place] = value
        elif isinstance(value, _Name | _Dtype):
            self._kept[place] = value
        elif isinstance(value, _Text):
            value.places = (*value.places, place)[-2:]
            self._recent[place] = value
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if max(len(self._kept), len(self._dictionaries)) > _MAX_TYPES or len(self._arrays) > _MAX_ARRAYS:
            raise Unclear("the pickle remembers too many names or arrays")

    def get(self, place: int) -> None:
        if place in self._arrays:
            raise Unclear("the pickle uses the wrapper of an array of joblib twice")
        if place in self._dictionaries:
            _give_away(self._dictionaries[place])
        self.push(self._kept.get(place, self._recent.get(place, _OPAQUE)))


def _give_away(value: object) -> None:
    """A value goes where the walk does not follow it, such as into a call, which may change it.

    With joblib's wrapper of arrays anything but a BUILD would let an unpickler read bytes that the walk takes for opcodes, or the other way
    round; so would a dictionary that describes another array than the walk saw.
    """
    if isinstance(value, _Dictionary):
        value.unsure = True
    if isinstance(value, _Array) or (isinstance(value, _Name) and value.imported == _ARRAY):
        raise Unclear("the pickle uses joblib's wrapper of arrays in a way joblib does not write")


def _leaf(value: object) -> object:
    return value if isinstance(value, _Leaf) else _OPAQUE


def _dtype(arguments: object) -> object:
    first = arguments[0] if isinstance(arguments, tuple) and arguments else None
    found = _DTYPE.fullmatch(first.value) if isinstance(first, _Text) else None
    if found is None:
        return _OPAQUE
    kind, count = found[1], int(found[2])
    return _Dtype(kind, 4 * count if kind == "U" else count, kind == "O")


def _build_dtype(dtype: _Dtype, state: object) -> None:
    """``dtype.__setstate__``: version, byte order, subarray, names, fields, size, alignment, flags."""
    if (
        not isinstance(state, tuple)
        or len(state) < 8
        or state[2] is not None
        or not isinstance(state[5], int)
        or not isinstance(state[7], int)
    ):
        raise Unclear("the type of an array cannot be told")
    if dtype.kind in "SUV" and state[5] >= 0:
        dtype.item_bytes = state[5]
    dtype.has_object = bool(state[7] & _HAS_OBJECT)


def _place(argument: bytes) -> int:
    return int.from_bytes(argument, "little")


def _place_line(argument: bytes) -> int:
    if not (argument.isdigit() and len(argument) <= 10):
        raise ContentFault("the pickle remembers something under a name that is no number")
    return int(argument)


_CODES = {code.code.encode("latin-1"): code for code in pickletools.opcodes}
_COUNT_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_SPECIAL: Mapping[str, Callable[[_Machine, bytes], None]] = {
    "FRAME": _Machine.frame,
    "SHORT_BINUNICODE": _Machine.text,
    "BINUNICODE": _Machine.text,
    "BINUNICODE8": _Machine.text,
    "BININT": _Machine.integer,
    "BININT1": _Machine.integer,
    "BININT2": _Machine.integer,
    "LONG1": _Machine.long_integer,
    "LONG4": _Machine.long_integer,
    "NONE": lambda machine, _argument: machine.constant(None),
    "NEWTRUE": lambda machine, _argument: machine.constant(True),
    "NEWFALSE": lambda machine, _argument: machine.constant(False),
    "MARK": lambda machine, _argument: machine.constant(_MARK),
    "EMPTY_TUPLE": lambda machine, _argument: machine.new_tuple([]),
    "TUPLE1": lambda machine, _argument: machine.new_tuple([machine.pop()]),
    "TUPLE2": lambda machine, _argument: machine.new_tuple([machine.pop(), machine.pop()][::-1]),
    "TUPLE3": lambda machine, _argument: machine.new_tuple([machine.pop(), machine.pop(), machine.pop()][::-1]),
    "TUPLE": lambda machine, _argument: machine.new_tuple(machine.pop_mark()),
    "EMPTY_DICT": lambda machine, _argument: machine.constant(_Dictionary()),
    "DICT": lambda machine, _argument: machine.new_dictionary(machine.pop_mark()),
    "SETITEM": lambda machine, _argument: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _argument: machine.set_items(machine.pop_mark()),
    "GLOBAL": _Machine.import_line,
    "STACK_GLOBAL": _Machine.import_stack,
    "INST": _Machine.import_and_call,
    "EXT1": _Machine.extension,
    "EXT2": _Machine.extension,
    "EXT4": _Machine.extension,
    "NEWOBJ": _Machine.new_object,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "DUP": _Machine.duplicate,
    "POP": _Machine.drop,
    "MEMOIZE": _Machine.memoize,
    "PUT": lambda machine, argument: machine.put(_place_line(argument)),
    "BINPUT": lambda machine, argument: machine.put(_place(argument)),
    "LONG_BINPUT": lambda machine, argument: machine.put(_place(argument)),
    "GET": lambda machine, argument: machine.get(_place_line(argument)),
    "BINGET": lambda machine, argument: machine.get(_place(argument)),
    "LONG_BINGET": lambda machine, argument: machine.get(_place(argument)),
}
