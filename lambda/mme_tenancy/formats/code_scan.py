"""The scan of code that a trusted tenant may bring: what pickles import and what Python sources use, judged by picklescan's lists.

Nothing is loaded or run. A pickle needs no process, no network and no interpreter to become a model; what reaches for one is refused.
A list can be evaded, so a scan is no proof: the tenant's tier is what admits code, and the scan comes on top.
"""

from __future__ import annotations

import _compat_pickle
import ast
import bz2
import lzma
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from logging import getLogger
from typing import Protocol

from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content, ContentFault, Pull
from mme_tenancy.formats.pickle_walk import Imported, PickleWalk, Unclear

__all__ = ["PickleScan", "PythonSource", "judge_imports"]

_SHOWN_NAMES = 3
_SOURCE_BYTES = 256 << 10
_OUTPUT_BYTES = 1 << 18
_MAX_RATIO, _RATIO_FLOOR_BYTES = 100, 64 << 20
_LZMA_BYTES = 24 << 20
"""What the decoder of xz may take; presets above 6 need more."""
_START_BYTES = 8
_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZ", b"\xfd7zXZ", b"\x5d\x00", b"\x04\x22M\x18")
"""zlib, gzip, bz2, xz, lzma, lz4: joblib/compressor.py."""
_MODELS_ARE_MADE_OF = frozenset(
    {"__builtin__", "_codecs", "builtins", "collections", "copy_reg", "copyreg", "datetime", "joblib", "lightgbm", "numpy", "pandas"}
    | {"scipy", "sklearn", "torch", "torchvision", "xgboost"}
)
"""Packages of the frameworks' containers."""
_USUAL_IN_PROGRAMS = frozenset(
    {
        *(f"os.{name}" for name in ("PathLike", "cpu_count", "environ", "fspath", "getcwd", "getenv", "getpid", "listdir", "path", "sep")),
        *(f"sys.{name}" for name in ("argv", "byteorder", "maxsize", "path", "platform", "stderr", "stdout", "version", "version_info")),
        *(f"operator.{name}" for name in ("attrgetter", "itemgetter", "methodcaller")),
        *("asyncio", "builtins.getattr", "builtins.open", "functools.partial", "functools.partialmethod", "uuid"),
    }
)
"""What picklescan lists because a pickle needs none of it, but programs do; with all that is below."""
_INTERPRETER = frozenset({"builtins.__import__", "importlib.import_module", "importlib.__import__", "marshal.load", "marshal.loads"})
"""What picklescan lacks for programs."""
_READS_ON = frozenset(
    {"Popen", "_load_from_bytes", "delattr", "eval", "exec", "exec_command", "load", "load_library", "loads", "query"}
    | {"read_pickle", "setattr"}
)
"""What picklescan lacks for pickles, by the last part of a name: ways of the containers' packages, mostly exported in several places, to
load a further pickle or library, to evaluate text, or to change what is there already. No model is made of them."""


def judge_imports(name: str, imports: Iterable[Imported], findings: Findings) -> None:
    """Judge what the pickle ``name`` imports: raises `ContentFault` for what is dangerous, notes what a container may lack."""
    origins = {spelling: imported for imported in imports for spelling in _spellings(imported)}
    reached = {*(origins[each] for each in _dangerous(origins)), *filter(_reads_on, origins.values())}
    if found := sorted(".".join(each) for each in reached):
        raise ContentFault(f"when it is loaded, it would import {_shown(found)}", "unsafe-code")
    unknown = sorted({".".join(each) for each in origins.values() if each[0].partition(".")[0] not in _MODELS_ARE_MADE_OF})
    if unknown:
        findings.add("unknown-import", name, f"when it is loaded, it imports {_shown(unknown)}")


def _reads_on(imported: Imported) -> bool:
    """Whether a pickle gets further by this name than the scan of it sees: also by a special method of a class, as a function."""
    *_, last = imported[1].split(".")
    return last in _READS_ON or ("." in imported[1] and last.startswith("__") and last.endswith("__"))


def _dangerous(names: Iterable[Imported]) -> list[Imported]:
    from picklescan.scanner import SafetyLevel, scan_pickle_bytes

    getLogger("picklescan").disabled = True  # it logs each name; the findings say more
    # A small pickle that only imports: what was found in a large file, in the form that the scanner reads.
    lines = b"".join(f"c{module}\n{name}\n".encode() for module, name in names)
    result = scan_pickle_bytes(BytesIO(b"\x80\x02" + lines + b"."), "imports", multiple_pickles=False)
    return [(each.module, each.name) for each in result.globals if each.safety is SafetyLevel.Dangerous]


def _spellings(imported: Imported) -> Iterator[Imported]:
    """All that a name may stand for: Python 3's name of it, each way to cut a dotted name, and a module that another one has imported."""
    module, name = imported
    for text in imported:
        if not all(part.isidentifier() for part in text.split(".")):
            raise Unclear(f"it imports {f'{module}.{name}'[:80]!r}, which is no name")
    yield imported
    if imported in _compat_pickle.NAME_MAPPING:
        yield _compat_pickle.NAME_MAPPING[imported]
    if module in _compat_pickle.IMPORT_MAPPING:
        yield _compat_pickle.IMPORT_MAPPING[module], name
    parts = name.split(".")
    for cut in range(1, len(parts)):
        yield ".".join(parts[:cut]), ".".join(parts[cut:])
    yield parts[-1], "any"


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(name[:80] for name in names[:_SHOWN_NAMES]) + more


class PickleScan:
    """The content of a pickle of protocol 2 or newer, or of one that joblib compressed: followed to its last byte.

    Args:
        name: the member's name.
        size_bytes: its size.
        findings: takes the warnings.
        joblib: whether ``joblib.load`` reads it. What is compressed, it always does.
    """

    def __init__(self, name: str, size_bytes: int, findings: Findings, *, joblib: bool) -> None:
        self._name, self._size_bytes, self._findings, self._joblib = name, size_bytes, findings, joblib
        self._start = b""
        self._walk = PickleWalk()
        self._content: Content | None = None

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        if self._content is not None:
            self._content.feed(data)
        elif len(self._start) + len(data) < _START_BYTES:
            self._start += data
        else:
            self._begin(self._start + bytes(data)).feed(memoryview(self._start + bytes(data)))

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless it was a whole pickle that imports nothing dangerous."""
        content = self._content
        if content is None:
            content = self._begin(self._start)
            content.feed(memoryview(self._start))
        content.close()
        judge_imports(self._name, self._walk.imports, self._findings)

    def _begin(self, start: bytes) -> Content:
        compressed = start.startswith(_COMPRESSED)
        if not compressed and start[:1] != b"\x80":
            raise ContentFault("the file is neither a pickle of protocol 2 to 5 nor one that joblib compressed")
        self._walk = PickleWalk(joblib=self._joblib or compressed)
        pull = Pull(self._walk.follow())
        self._content = _Unpacked(start, pull, self._size_bytes) if compressed else pull
        return self._content


class _Decompressor(Protocol):
    """What zlib, bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class _Unpacked:
    """A compressed file, unpacked in pieces of bounded size.

    Args:
        start: its first bytes.
        inner: takes what is unpacked.
        size_bytes: its size.
    """

    def __init__(self, start: bytes, inner: Content, size_bytes: int) -> None:
        self._inner = inner
        self._limit_bytes = max(_RATIO_FLOOR_BYTES, _MAX_RATIO * size_bytes)
        self._got_bytes = 0
        self._zlib: zlib._Decompress | None = None
        self._other: bz2.BZ2Decompressor | lzma.LZMADecompressor | None = None
        if start.startswith((b"\x78", b"\x1f\x8b")):
            self._zlib = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
        elif start.startswith(b"BZ"):
            self._other = bz2.BZ2Decompressor()
        elif start.startswith(b"\xfd7zXZ"):
            self._other = lzma.LZMADecompressor(lzma.FORMAT_XZ, _LZMA_BYTES)
        elif start.startswith(b"\x5d\x00"):
            self._other = lzma.LZMADecompressor(lzma.FORMAT_ALONE, _LZMA_BYTES)
        else:
            raise Unclear("the file is compressed with lz4, which cannot be looked into: compress it with zlib")

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        try:
            for piece in self._pieces(bytes(data)):
                self._got_bytes += len(piece)
                if self._got_bytes > self._limit_bytes:
                    raise ContentFault(f"the file unpacks to more than {_MAX_RATIO} times its size", "ratio")
                self._inner.feed(memoryview(piece))
        except (zlib.error, OSError, EOFError, lzma.LZMAError) as error:
            raise ContentFault(f"the compressed data cannot be unpacked: {str(error)[:80]}") from error

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` if that is too early."""
        stream: _Decompressor | None = self._zlib or self._other
        if stream is None or not stream.eof:
            raise ContentFault("the compressed data end too early")
        self._inner.close()

    def _pieces(self, packed: bytes) -> Iterator[bytes]:
        stream: _Decompressor | None = self._zlib or self._other
        if stream is not None and stream.eof and packed:
            raise ContentFault("there is data behind the end of the compressed data")
        if self._zlib is not None:
            while packed and not self._zlib.eof:
                yield self._zlib.decompress(packed, _OUTPUT_BYTES)
                packed = self._zlib.unconsumed_tail
        elif self._other is not None:
            yield self._other.decompress(packed, _OUTPUT_BYTES)
            while not self._other.eof and not self._other.needs_input:
                yield self._other.decompress(b"", _OUTPUT_BYTES)
        if stream is not None and stream.eof and stream.unused_data:
            raise ContentFault("there is data behind the end of the compressed data")


class PythonSource:
    """The content of a Python file: parsed, and what it uses judged."""

    def __init__(self) -> None:
        self._text = bytearray()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        self._text += data[: _SOURCE_BYTES + 1]
        if len(self._text) > _SOURCE_BYTES:
            raise Unclear(f"the file has more than {_SOURCE_BYTES} bytes")

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` if the file is no Python, or uses what it must not."""
        try:
            tree = ast.parse(bytes(self._text))
            uses = _Uses()
            uses.visit(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unclear(f"the file is not Python that can be read: {str(error)[:80]}") from error
        found = {name for name in uses.names if name in _INTERPRETER}
        pairs = {cut: name for name in uses.names if not _is_usual(name) for cut in _cuts(name)}
        found |= {pairs[pair] for pair in _dangerous(pairs)}
        if found:
            raise ContentFault(f"it uses {_shown(sorted(found))}", "unsafe-code")


def _is_usual(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:end]) in _USUAL_IN_PROGRAMS for end in range(1, len(parts) + 1))


def _cuts(name: str) -> Iterator[Imported]:
    parts = name.split(".")
    for cut in range(1, len(parts)):
        yield ".".join(parts[:cut]), ".".join(parts[cut:])


class _Uses(ast.NodeVisitor):
    """Collects the dotted names of imported and built-in things that a program uses; a module that is handed on counts as all of it."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._bound: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        """``import a.b as c``."""
        for alias in node.names:
            self._bound[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """``from a import b as c``; a relative import stays inside the archive."""
        if node.module is None or node.level:
            return
        for alias in node.names:
            dotted = f"{node.module}.{'any' if alias.name == '*' else alias.name}"
            self.names.add(dotted)
            self._bound[alias.asname or alias.name] = dotted

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """``a.b.c``."""
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            self.visit(inner)
        else:
            root = self._bound.get(inner.id, f"builtins.{inner.id}")
            self.names.add(".".join([root, *reversed(parts)]))

    def visit_Name(self, node: ast.Name) -> None:
        """``a``, alone."""
        bound = self._bound.get(node.id)
        if bound is None:
            self.names.add(f"builtins.{node.id}")
        else:
            self.names.add(bound if "." in bound else f"{bound}.any")
