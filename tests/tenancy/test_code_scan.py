"""Code that a trusted tenant brings is scanned: every import of a pickle is found, wherever it hides, and nothing is ever run."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import os
import pickle
import random
import struct
import subprocess
import tracemalloc
import zipfile
import zlib

import joblib
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from mme_tenancy.archive import inspect_artifact
from mme_tenancy.formats.content import ContentFault, Pull
from mme_tenancy.formats.pickle_walk import PickleWalk
from tests.tenancy.artifact_corpus import TENSORS, pack, torch_saved, triton, zipped

MIB = 1 << 20


def inspect(artifact, framework):
    chunks = (artifact[start : start + 4096] for start in range(0, len(artifact), 4096))
    digest = hashlib.sha256(artifact).hexdigest()
    return inspect_artifact(chunks, sha256=digest, size_bytes=len(artifact), framework=framework, allow_code=True)


def sklearn(content, name="model.joblib"):
    return inspect(pack((name, content)), "sklearn")


def rules(result):
    return [(finding.rule, finding.member) for finding in result.findings]


class Calls:
    """Pickles as a call of something."""

    def __init__(self, called, *arguments):
        self.call = called, arguments

    def __reduce__(self):
        return self.call


ATTACKS = {
    "a shell": Calls(os.system, "true"),
    "a process": Calls(subprocess.Popen, ["true"]),
    "the interpreter": Calls(eval, "1"),
    "deep inside": {"a": [({"b": Calls(os.system, "true")},)]},
}


def dumped(value, **options):
    buffer = io.BytesIO()
    joblib.dump(value, buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_reaches_for_the_system_is_refused(attack, protocol):
    result = sklearn(pickle.dumps(ATTACKS[attack], protocol=protocol), "model.pkl")
    assert rules(result) == [("unsafe-code", "model.pkl")]
    assert "it would import" in result.findings[0].detail
    assert result.findings[0].fix


@pytest.mark.parametrize("compress", [0, 3, ("bz2", 3), ("xz", 3), ("lzma", 3), ("gzip", 3)])
def test_joblib_hides_nothing_behind_the_bytes_of_its_arrays(compress):
    value = [numpy.arange(10_000.0), numpy.array([b"x"]), Calls(os.system, "true"), numpy.zeros((3, 4), order="F")]
    assert rules(sklearn(dumped(value, compress=compress))) == [("unsafe-code", "model.joblib")]


def test_an_array_of_objects_is_looked_into():
    array = numpy.empty(2, dtype=object)
    array[0] = Calls(os.system, "true")
    assert rules(sklearn(dumped([array, numpy.ones(3)]))) == [("unsafe-code", "model.joblib")]
    array[0] = {"a": 1}
    assert sklearn(dumped([array, numpy.ones(3)])).findings == ()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x80\x02cos\nsystem\n.", "os.system"),
        (b"\x80\x02cposix\nsystem\n.", "posix.system"),
        (b"\x80\x02c__builtin__\neval\n.", "__builtin__.eval"),
        (b"\x80\x02ccommands\ngetoutput\n.", "commands.getoutput"),
        (b"\x80\x02(ios\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x07sklearn\x8c\tos.system\x93.", "sklearn.os.system"),  # an attribute of a harmless module
        (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x9400h\x00h\x01\x93.", "os.system"),  # by way of the memo
        (b"\x80\x02cjoblib\nload\n.", "joblib.load"),  # it would load a second pickle, which nothing scans
        (b"\x80\x02cpandas.io.pickle\nread_pickle\n.", "pandas.io.pickle.read_pickle"),
        (b"\x80\x02cjoblib.externals.cloudpickle\nloads\n.", "joblib.externals.cloudpickle.loads"),
        (b"\x80\x02ctorch.storage\n_load_from_bytes\n.", "torch.storage._load_from_bytes"),
        (b"\x80\x02cpandas\neval\n.", "pandas.eval"),
        (b"\x80\x02cnumpy.ctypeslib\nload_library\n.", "numpy.ctypeslib.load_library"),
        (b"\x80\x02cbuiltins\nsetattr\n.", "builtins.setattr"),
        (b"\x80\x04cbuiltins\nobject.__getattribute__\n.", "builtins.object.__getattribute__"),
        (b"\x80\x04cnumpy\ndtype.__setstate__\n.", "numpy.dtype.__setstate__"),
        (b"\x80\x02cjoblib.numpy_pickle\nos\n.", "joblib.numpy_pickle.os"),  # a whole module by way of another
        # what the memo had earlier in the same place counts no more
        (
            b"\x80\x02X\x05\x00\x00\x00numpyq\x05X\x02\x00\x00\x00osq\x050X\x01\x00\x00\x00a\x930h\x05X\x06\x00\x00\x00system\x93.",
            "os.system",
        ),
        (b"\x80\x02X\x02\x00\x00\x00osq\x07X\x06\x00\x00\x00systemq\x0900h\x07h\x09\x93.", "os.system"),
    ],
)
def test_an_import_is_found_however_it_is_spelled(content, word):
    (finding,) = sklearn(content, "model.pkl").findings
    assert (finding.rule, word in finding.detail) == ("unsafe-code", True)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8c\x02os\x8c\x06systemN0\x8c\x01xN\x93.",  # a name that is no text
        b"\x80\x02\x82\x01.",  # the extension registry
        b"\x80\x02cos\xff\nsystem\n.",
        b"\x80\x04\x8c\x02o \x8c\x06system\x93.",  # no name at all
        b"\x80\x02c" + b"a" * 2000 + b"\nb\n.",
        b"\x80\x02" + b"".join(b"cnumpy\nn%d\n0" % number for number in range(2100)) + b"N.",
        b"\x80\x02" + b"N" * 30_000 + b".",
        b"\x80\x04N\x94q\x09\x94.",
    ],
)
def test_a_pickle_whose_imports_cannot_be_told_is_refused(content):
    assert rules(sklearn(content, "model.pkl")) == [("unscanned-code", "model.pkl")]


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04}.}",
        b"\x80\x04\x95",
        b"\x80\x02\x8b\xff\xff\xff\xff.",
        b"\x80\x02}",
        b"\x80\x02\xfe.",
        b"\x80\x02.",
        b"\x80\x02t.",
        b"\x80\x02R.",
        b"\x80\x02b.",
        b"\x80\x02q\x00.",
        b"\x80\x02p-1\n.",
        b"\x80\x02NN.",
        b"N.",
        b"\x80\x02(.",
    ],
)
def test_what_is_no_whole_pickle_is_refused(content):
    assert [rule for rule, _ in rules(sklearn(content, "model.pkl"))] == ["sklearn-model"], content


# -- joblib's arrays: the walk and the unpickler must agree where the next opcode is -----------------------------------------------------


def wrapper(
    name="NumpyArrayWrapper", *, shape=b"K\x02\x85", dtype=b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8K\x00K\x01tR", build=b"b", state=True
):
    items = b"X\x05\x00\x00\x00shape" + shape + b"X\x05\x00\x00\x00dtype" + dtype
    return b"cjoblib.numpy_pickle\n" + name.encode() + b"\n)\x81" + (b"}(" + items + b"u" if state else b"N") + build


def test_the_bytes_of_an_array_are_no_opcodes():
    hidden = b"cos\nsystem\n".ljust(16)
    assert sklearn(b"\x80\x02" + wrapper() + hidden + b".").findings == ()
    assert rules(sklearn(b"\x80\x02" + wrapper() + bytes(16) + b"0cos\nsystem\n.")) == [("unsafe-code", "model.joblib")]


@pytest.mark.parametrize(
    "content",
    list(
        {
            "read by pickle.load": None,
            "an older wrapper": wrapper("NDArrayWrapper") + bytes(16),
            "no state": wrapper(state=False) + bytes(16),
            "a shape that is computed": wrapper(shape=b"cnumpy\nint64\nK\x02\x85R\x85") + bytes(16),
            "a type that is computed": wrapper(dtype=b"cnumpy\nvoid\n)R") + bytes(16),
            "a type with a subarray": wrapper(dtype=b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R(K\x03X\x01\x00\x00\x00<)NNK\x08K\x08K\x00tb")
            + bytes(16),
            "called": b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)R",
            "copied": b"ccopy\ncopy\n" + wrapper(build=b"") + b"\x85R",
            "twice on the stack": b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x812",
            "taken from the memo": wrapper().replace(b")\x81", b")\x81q\x00") + bytes(16) + b"0h\x00",
            "as a base class": b"ccopyreg\n_reconstructor\ncjoblib.numpy_pickle\nNumpyArrayWrapper\ncbuiltins\nobject\nN\x87R",
            "in a dictionary": b"}X\x01\x00\x00\x00a" + wrapper(build=b"") + b"s",
            "in a frame": b"\x95\x00\x01\x00\x00\x00\x00\x00\x00" + wrapper() + bytes(16),
        }.items()
    ),
    ids=lambda item: item[0],
)
def test_an_array_that_joblib_did_not_write_is_refused(content):
    _, body = content
    name = "model.pkl" if body is None else "model.joblib"
    body = wrapper() + bytes(16) if body is None else body
    assert rules(sklearn(b"\x80\x02" + body + b".", name)) == [("unscanned-code", name)]


def array_as_joblib_writes_it(then):
    """A pickle whose array has no item as far as its state was written; ``then`` comes before the wrapper gets the state."""
    kind = b"cnumpy\ndtype\nX\x02\0\0\0u1\x89\x88\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    state = b"}q\x05(X\x05\0\0\0shapeK\0\x85X\x05\0\0\0dtype" + kind + b"X\x05\0\0\0orderX\x01\0\0\0CX\x0a\0\0\0allow_mmap\x89"
    state += b"X\x08\0\0\0subclasscnumpy\nndarray\nu"
    hidden = b"0cos\ngetpid\n)R."
    # To whom the array has three bytes, what follows is a call; to whom it has none, it is a text of bytes.
    return b"\x80\x04cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81" + state + then + b"bNC" + bytes([len(hidden)]) + hidden + b"00."


SHAPE_OF_THREE = b"X\x05\0\0\0shapeK\x03\x85s"


@pytest.mark.parametrize(
    "then",
    [
        b"h\x05" + SHAPE_OF_THREE + b"0",  # by way of the memo
        b"Vshape\nK\x03\x85s",  # by another spelling of the key
        b"cbuiltins\ndict.update\nh\x05}" + SHAPE_OF_THREE + b"\x86R0",  # by a call
        b"2" + SHAPE_OF_THREE + b"0",  # the same dictionary twice on the stack
    ],
)
def test_an_array_whose_state_is_changed_behind_the_walks_back_is_refused(then):
    content = array_as_joblib_writes_it(then)
    assert joblib.load(io.BytesIO(content)) == os.getpid(), "the unpickler takes the array's bytes for opcodes"
    assert rules(sklearn(content))[0][0] in {"unscanned-code", "unsafe-code"}


@pytest.mark.parametrize("method", [b"read", b"read_array"])
def test_an_array_whose_wrapper_reads_by_another_method_is_refused(method):
    hidden = b"0cos\ngetpid\n)R."
    then = (
        b"X" + len(method).to_bytes(4, "little") + method + b"cbuiltins\nslice\ns" + b"X\x05\0\0\0shapeK" + bytes([len(hidden)]) + b"\x85s"
    )
    head, _, _ = array_as_joblib_writes_it(then).rpartition(b"bNC")
    # To whom the array is read, what follows are its bytes; to whom something else is called, it is a call of its own.
    content = head + b"b" + hidden + b"."
    assert joblib.load(io.BytesIO(content)) == os.getpid(), "the unpickler takes the array's bytes for opcodes"
    assert rules(sklearn(content)) == [("unscanned-code", "model.joblib")]


def test_the_same_array_is_admitted_when_its_state_stays():
    assert sklearn(array_as_joblib_writes_it(b"")).findings == ()


def test_an_array_with_a_negative_or_endless_shape_is_refused():
    assert rules(sklearn(b"\x80\x02" + wrapper(shape=b"J\xff\xff\xff\xff\x85") + b".")) == [("unscanned-code", "model.joblib")]
    huge = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"
    assert rules(sklearn(b"\x80\x02" + wrapper(shape=huge) + b".")) == [("sklearn-model", "model.joblib")]


def seen(content, *, by_joblib):
    """The imports that the walk finds, in pieces of odd sizes."""
    walk = PickleWalk(joblib=by_joblib)
    pull = Pull(walk.follow())
    for start in range(0, len(content), 997):
        pull.feed(memoryview(content[start : start + 997]))
    pull.close()
    return set(walk.imports)


class Watched(pickle._Unpickler):
    """Python's own unpickler, with what it imports."""

    def __init__(self, file):
        super().__init__(file)
        self.imported = set()

    def find_class(self, module, name):
        self.imported.add((module, name))
        return super().find_class(module, name)


def models():
    dice = numpy.random.default_rng(1)
    x, y = dice.random((60, 4)), dice.integers(0, 3, 60)
    words = TfidfVectorizer().fit(["a few words", "and others", "words again"])
    structured = numpy.zeros(3, dtype=[("a", "f8"), ("b", "U5")])
    yield from (RandomForestClassifier(n_estimators=30, random_state=1).fit(x, y), KNeighborsClassifier().fit(x, y))
    yield from (GradientBoostingClassifier(n_estimators=5).fit(x, y), make_pipeline(words, LogisticRegression()))
    yield [structured, numpy.array(["a", "bcd"]), numpy.datetime64("2020-01-01"), numpy.arange(3).astype("M8[D]"), numpy.float32(1), x.T]
    yield {
        "ordered": collections.OrderedDict(a=1),
        "range": range(3),
        "bytes": bytearray(b"x" * 1000),
        "set": frozenset({1, 2}),
        "big": 1 << 100,
    }


@pytest.mark.parametrize("model", list(models()), ids=lambda model: type(model).__name__)
def test_the_walk_sees_what_the_unpicklers_import(model):
    for protocol in range(2, 6):
        plain = pickle.dumps(model, protocol=protocol)
        watched = Watched(io.BytesIO(plain))
        watched.load()
        assert seen(plain, by_joblib=False) == watched.imported
        assert sklearn(plain, "model.pkl").findings == ()
    written = dumped(model)
    assert {name for _, name in seen(written, by_joblib=True)} >= {name for _, name in watched.imported} - {"_reconstruct", "_frombuffer"}
    assert (sklearn(written).findings, sklearn(written).warnings) == ((), ())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([False, True]))
def test_random_opcodes_end_in_a_verdict(tail, by_joblib):
    with contextlib.suppress(ContentFault):
        seen(b"\x80\x04" + tail, by_joblib=by_joblib)


def test_flipped_bytes_of_a_pickle_never_hide_an_import_from_the_walk():
    plain = pickle.dumps([collections.OrderedDict(a=1), Calls(os.getcwd), "text" * 50, list(range(300))])
    dice = random.Random(7)
    loaded = 0
    for _ in range(300):
        damaged = bytearray(plain)
        damaged[dice.randrange(2, len(plain))] = dice.randrange(256)
        watched = Watched(io.BytesIO(bytes(damaged)))
        watched.find_class = lambda module, name, into=watched.imported: into.add((module, name)) or dict
        with contextlib.suppress(Exception):
            watched.load()
            loaded += 1
        with contextlib.suppress(ContentFault):
            # What raises while it is loaded has imported all the same.
            assert seen(bytes(damaged), by_joblib=False) >= watched.imported
    assert loaded > 100


def test_a_large_pickle_is_scanned_in_bounded_memory():
    words = {f"word number {number}": number for number in range(30_000)}
    body = dumped([words, b"x" * (30 * MIB), numpy.zeros(MIB), collections.OrderedDict(a=1), collections.Counter()], compress=1)
    artifact = pack(("model.joblib", body))
    tracemalloc.start()
    result = inspect(artifact, "sklearn")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.findings == ()
    assert peak < 24 * MIB


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"\x04\x22M\x18" + bytes(20), "unscanned-code"),
        (zlib.compress(pickle.dumps([])) + b"x", "sklearn-model"),
        (zlib.compress(pickle.dumps([]))[:-2], "sklearn-model"),
        (zlib.compress(b"hello"), "sklearn-model"),
        (b"\xfd7zXZ" + bytes(20), "sklearn-model"),
        (b"BZ", "sklearn-model"),
        (zlib.compress(b"\x80\x02B" + struct.pack("<L", 80 * MIB) + bytes(80 * MIB) + b"."), "ratio"),
    ],
)
def test_compressed_pickles_are_unpacked_with_care(content, rule):
    assert rules(sklearn(content)) == [(rule, "model.joblib")]


def test_what_a_container_may_lack_is_a_warning():
    (warning,) = sklearn(b"\x80\x02cacme.features\nScaler\n)R.", "model.pkl").warnings
    assert (warning.rule, warning.member, "acme.features.Scaler" in warning.detail) == ("unknown-import", "model.pkl", True)


def test_every_pickle_beside_the_model_is_scanned_too():
    evil = pickle.dumps(ATTACKS["a shell"])
    assert rules(inspect(pack(("model.pkl", pickle.dumps([])), ("parts/a.dill", evil)), "sklearn")) == [("unsafe-code", "parts/a.dill")]
    assert rules(inspect(triton(**{"m/1/a.pkl": evil}), "triton")) == [("unsafe-code", "m/1/a.pkl")]


# -- PyTorch ----------------------------------------------------------------------------------------------------------------------------


def saved(**changes):
    return {"archive/data.pkl": TENSORS, "archive/data/0": bytes(64), "archive/version": b"3\n"} | changes


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (torch_saved(), None),
        (zipped(saved(**{"archive/data.pkl": pickle.dumps(ATTACKS["a shell"])})), "unsafe-code"),
        (zipped({"archive/data/0": bytes(8), **saved()}), "unscanned-code"),
        (zipped(saved(), zipfile.ZIP_DEFLATED), "unscanned-code"),
        (b"PK\x03\x04" + bytes(22) + struct.pack("<2H", 0, 0) + torch_saved(), "unscanned-code"),
        (zipped(saved(**{"archive/data.pkl": TENSORS + b"x"})), "unscanned-code"),
        (zipped(saved(**{"archive/data.pkl": TENSORS[:-1]})), "pytorch-model"),
    ],
    ids=["right", "a shell", "not first", "compressed", "something in front", "something behind", "cut off"],
)
def test_the_pickle_that_torch_save_writes_is_scanned(content, rule):
    found = rules(inspect(pack(("model.pth", content)), "pytorch"))
    assert found == ([] if rule is None else [(rule, "model.pth")])


# -- Python -----------------------------------------------------------------------------------------------------------------------------

HARMLESS = b"""
import os, sys, json, functools, operator, uuid
import numpy as np
from . import helper
class TritonPythonModel:
    def initialize(self, args):
        self.folder = os.path.join(args["model_repository"], os.environ.get("A", ""))
        self.key = functools.partial(operator.itemgetter(1))
        self.model = re.compile("x"); getattr(self, "folder"); open(self.folder)
    def execute(self, requests):
        return [np.exp(r) for r in requests] + [compile_it(1), self.eval(), {}.exec]
"""


def backend(source):
    return inspect(triton('backend: "python"', model="model.py", content=source), "triton")


def test_a_harmless_back_end_is_admitted():
    assert backend(HARMLESS).findings == ()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (b"import os\nos.system('true')", "os.system"),
        (b"import os as o\nrun = o.popen", "os.popen"),
        (b"from os import system as s", "os.system"),
        (b"from os import *", "os.any"),
        (b"import os\ngetattr(os, 'sys' + 'tem')", "os.any"),
        (b"import subprocess\nsubprocess.run(['true'])", "subprocess.run"),
        (b"def f():\n    import socket\n    return socket.socket()", "socket.socket"),
        (b"eval('1')", "builtins.eval"),
        (b"x = [exec]", "builtins.exec"),
        (b"__import__('os')", "builtins.__import__"),
        (b"import importlib\nimportlib.import_module('os')", "importlib.import_module"),
        (b"import pickle\npickle.load(open('x', 'rb'))", "pickle.load"),
        (b"import ctypes\nctypes.CDLL('x')", "ctypes.CDLL"),
        (b"import urllib.request\nurllib.request.urlopen('http://x')", "urllib.request.urlopen"),
    ],
)
def test_a_back_end_that_reaches_for_the_system_is_refused(source, name):
    (finding,) = backend(source).findings
    assert (finding.rule, finding.member, finding.detail) == ("unsafe-code", "m/1/model.py", f"it uses {name}")


@pytest.mark.parametrize("source", [b"def", b"\0", b"x = '" + b"a" * (300 << 10) + b"'", b"(" * 5000, b"\xff = 1"])
def test_a_source_that_cannot_be_read_is_refused(source):
    assert rules(backend(source)) == [("unscanned-code", "m/1/model.py")]


@pytest.mark.parametrize("name", ["m/libx.so", "m/1/x.pyc", "m/x.dylib"])
def test_compiled_code_is_refused(name):
    assert rules(inspect(triton(**{name: b"\x7fELF"}), "triton")) == [("unscanned-code", name)]
