"""Right and hostile artifacts of every framework, made here: small files of the right format, or broken in one way or several."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib

from mme_tenancy.testing import booster

MIB = 1 << 20


def entry(name, kind=tarfile.REGTYPE, mode=0o644, linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, linkname
    return info


def folder(name):
    return entry(name, tarfile.DIRTYPE, 0o755)


def pack(*entries, tar_format=tarfile.PAX_FORMAT):
    """A .tar.gz of names and contents, or of ready headers (with their content, if they have one)."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tar_format) as archive:
        for item in entries:
            head, content = item if isinstance(item, tuple) else (item, b"")
            info = head if isinstance(head, tarfile.TarInfo) else entry(head)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def tree(files, **options):
    return pack(*files.items(), **options)


def block(name, kind=tarfile.REGTYPE, content=b"", size=None):
    info = entry(name, kind)
    info.size = len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def raw(*blocks):
    return gzip.compress(b"".join(blocks) + bytes(1024), mtime=0)


def bomb(head, size):
    """A small file of a large member: ``head`` and ``size`` bytes of it."""
    packer = zlib.compressobj(9, wbits=31)
    piece = b"a" * MIB
    return b"".join([packer.compress(head), *(packer.compress(piece) for _ in range(size // MIB)), packer.flush()])


# -- protocol buffers ---------------------------------------------------------------------------------------------------


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *parts):
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def tensor(location=None, swapped=False):
    entries = b""
    if location is not None:
        key, value = message(1, "location"), message(2, location)
        entries = message(13, value + key if swapped else key + value) + number(14, 1)
    return number(1, 2) + number(2, 1) + message(8, "w") + (entries or message(9, struct.pack("<2f", 1, 2)))


def onnx_graph(*extra, initializers=()):
    node = message(1, message(1, "x"), message(2, "y"), message(4, "Identity"))
    value = message(1, "y") + message(2, message(1, number(1, 1)))
    return (
        node
        + message(2, "graph")
        + b"".join(message(5, item) for item in initializers)
        + message(11, value)
        + message(12, value)
        + b"".join(extra)
    )


def onnx(*extra, graph=None):
    return (
        number(1, 8)
        + message(2, "tests")
        + message(7, onnx_graph() if graph is None else graph)
        + message(8, number(2, 17))
        + b"".join(extra)
    )


def saved_model(*operations, inside_function=()):
    nodes = b"".join(message(1, message(1, f"n{place}"), message(2, name)) for place, name in enumerate(operations))
    library = message(2, message(1, b"".join(message(3, message(1, "m"), message(2, name)) for name in inside_function)))
    signature = message(5, message(1, "serving_default") + message(2, b""))
    return number(1, 1) + message(2, message(1, message(4, "serve")) + message(2, nodes + library) + signature)


# -- zip files ------------------------------------------------------------------------------------------------------------


def zipped(files, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    return buffer.getvalue()


# A directory of 90,000 entries, each as short as can be, in less than what is held of a file's end.
_ENTRIES = (b"PK\x01\x02" + bytes(24) + b"\x01\x00" + bytes(16) + b"a") * 85_000
MANY_ENTRIES = b"PK\x03\x04" + _ENTRIES + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(_ENTRIES), 4, 0)

TENSORS = pickle.dumps({"weight": [1.0, 2.0]})


def torch_script():
    return zipped(
        {
            "model/data.pkl": TENSORS,
            "model/code/__torch__.py": b"class Model: pass",
            "model/constants.pkl": pickle.dumps(()),
            "model/data/0": bytes(64),
            "model/version": b"3\n",
        }
    )


def torch_saved():
    return zipped({"archive/data.pkl": TENSORS, "archive/byteorder": b"little", "archive/data/0": bytes(64), "archive/version": b"3\n"})


def skops():
    return zipped({"schema.json": b'{"__class__": "LogisticRegression"}', "1.npy": bytes(200)}, zipfile.ZIP_DEFLATED)


def safetensors(header=None, data=bytes(8)):
    text = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}} if header is None else header).encode()
    return struct.pack("<Q", len(text)) + text + data


# -- Triton ---------------------------------------------------------------------------------------------------------------

CONFIG = 'name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 8 # as many\ninput [{ name: "x", data_type: TYPE_FP32, dims: [ -1, 4 ] }]\n'


def ensemble(*models, name="ens"):
    steps = ", ".join(f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "x" value: "y" }} }}' for model in models)
    return f'name: "{name}"\nplatform: "ensemble"\nensemble_scheduling {{ step [ {steps} ] }}\n'.encode()


def triton(config=CONFIG, name="m", model="model.onnx", content=None, version="1", **extra):
    return pack(
        (f"{name}/config.pbtxt", config.encode()), (f"{name}/{version}/{model}", onnx() if content is None else content), *extra.items()
    )


def triton_ensemble(count, steps=None, extra=()):
    names = [f"m{place}" for place in range(count)]
    files = [(f"{name}/config.pbtxt", b'backend: "onnxruntime"') for name in names] + [(f"{name}/1/model.onnx", onnx()) for name in names]
    return pack(folder("ens"), folder("ens/1"), ("ens/config.pbtxt", ensemble(*(names if steps is None else steps))), *files, *extra)


# -- the corpora ------------------------------------------------------------------------------------------------------------

MODEL = ("xgboost-model", booster())
VARIABLES = {"1/variables/variables.index": b"i", "1/variables/variables.data-00000-of-00001": b"d"}

RIGHT = {
    "xgboost: minimal": ("xgboost", False, pack(MODEL)),
    "xgboost: packed as a whole folder": ("xgboost", False, pack(folder("./"), ("./xgboost-model", booster()))),
    "xgboost: with documents in a folder": ("xgboost", False, pack(MODEL, folder("docs"), ("docs/card.md", b"# card"))),
    "xgboost: ustar": ("xgboost", False, pack(MODEL, tar_format=tarfile.USTAR_FORMAT)),
    "sklearn: skops": ("sklearn", False, pack(("model.skops", skops()))),
    "sklearn: pickle, allowed": ("sklearn", True, pack(("model.pkl", pickle.dumps({"a": 1})))),
    "sklearn: compressed joblib, allowed": ("sklearn", True, pack(("model.joblib", zlib.compress(pickle.dumps({"a": 1}))))),
    "onnx: minimal": ("onnx", False, pack(("model.onnx", onnx()))),
    "onnx: with weights": ("onnx", False, pack(("model.onnx", onnx(graph=onnx_graph(initializers=[tensor()]))))),
    "onnx: with external data": (
        "onnx",
        False,
        pack(("net.onnx", onnx(graph=onnx_graph(initializers=[tensor("weights/w.bin")]))), ("weights/w.bin", bytes(8))),
    ),
    "onnx: with fields of a newer version": ("onnx", False, pack(("model.onnx", onnx(message(99, "new"), number(100, 1))))),
    "pytorch: TorchScript": ("pytorch", False, pack(("model.pt", torch_script()))),
    "pytorch: TorchScript as .pth with labels": ("pytorch", False, pack(("model.pth", torch_script()), ("labels.txt", b"cat\n"))),
    "pytorch: safetensors": ("pytorch", False, pack(("model.safetensors", safetensors()))),
    "pytorch: torch.save with code, allowed": ("pytorch", True, pack(("model.pth", torch_saved()), ("code/inference.py", b"pass"))),
    "tensorflow: version at the root": ("tensorflow", False, tree({"1/saved_model.pb": saved_model("Const", "MatMul"), **VARIABLES})),
    "tensorflow: version in a folder": ("tensorflow", False, tree({"net/000000001/saved_model.pb": saved_model("Const")})),
    "tensorflow: two versions": ("tensorflow", False, tree({"1/saved_model.pb": saved_model(), "2/saved_model.pb": saved_model()})),
    "tensorflow: assets and fingerprint": (
        "tensorflow",
        False,
        tree({"1/saved_model.pb": saved_model("Const"), "1/fingerprint.pb": b"f", "1/assets/vocabulary.txt": b"a\n", **VARIABLES}),
    ),
    "triton: onnx": ("triton", False, triton()),
    "triton: platform, without a name": ("triton", False, triton('platform: "onnxruntime_onnx"')),
    "triton: TorchScript": ("triton", False, triton('backend: "pytorch"', model="model.pt", content=torch_script())),
    "triton: plan": ("triton", False, triton("platform: 'tensorrt_plan'", model="model.plan", content=b"ftrt")),
    "triton: own file name": ("triton", False, triton(CONFIG + 'default_model_filename: "net.onnx"', model="net.onnx")),
    "triton: forest": ("triton", False, triton('backend: "fil"', model="xgboost.json", content=booster())),
    "triton: graph": (
        "triton",
        False,
        triton('backend: "tensorflow" platform: "tensorflow_graphdef"', model="model.graphdef", content=b"\x0a\x00"),
    ),
    "triton: SavedModel": (
        "triton",
        False,
        triton('platform: "tensorflow_savedmodel"', model="model.savedmodel/saved_model.pb", content=saved_model("Const")),
    ),
    "triton: ensemble of five": ("triton", False, triton_ensemble(5)),
    "triton: Python, allowed": ("triton", True, triton('backend: "python"', model="model.py", content=b"class TritonPythonModel: pass")),
}
"""Framework, whether code is allowed, artifact; by name."""

_LONG = block("a", tarfile.GNUTYPE_LONGNAME, size=200 * MIB)
_PAX = block("a", tarfile.XHDTYPE, size=200 * MIB)
_FLIPPED = bytearray(pack(MODEL))
_FLIPPED[len(_FLIPPED) // 2] ^= 0x10

HOSTILE = {
    # the gzip stream
    "not gzip": ("xgboost", b"PK\x03\x04 no gzip", {"gzip"}),
    "a damaged byte": ("xgboost", bytes(_FLIPPED), {"gzip"}),
    "a wrong checksum": ("xgboost", pack(MODEL)[:-8] + bytes(4) + pack(MODEL)[-4:], {"gzip"}),
    "half of it": ("xgboost", pack(MODEL)[: len(pack(MODEL)) // 2], {"gzip-truncated"}),
    "a second gzip stream": ("xgboost", pack(MODEL) * 2, {"gzip-members"}),
    "data behind the gzip stream": ("xgboost", pack(MODEL) + b"tail", {"gzip-trailer"}),
    # the tar archive
    "no tar": ("xgboost", gzip.compress(b"hello" * 1000), {"tar-header"}),
    "no end mark": ("xgboost", gzip.compress(block(*MODEL[:1], content=MODEL[1])), {"tar-truncated"}),
    "a member behind the end mark": ("xgboost", raw(block("xgboost-model", content=MODEL[1]), bytes(1024), block("x")), {"tar-end"}),
    "a sparse file": ("xgboost", raw(block("xgboost-model", tarfile.GNUTYPE_SPARSE, MODEL[1])), {"tar-unsupported"}),
    "a link with content": ("xgboost", raw(block("a/l", tarfile.SYMTYPE, b"x")), {"tar-header"}),
    # memory bombs
    "a GNU long name of 200 MB": ("xgboost", bomb(_LONG, 200 * MIB), {"tar-extension"}),
    "a pax header of 200 MB": ("xgboost", bomb(_PAX, 200 * MIB), {"tar-extension"}),
    "a GNU long link of 200 MB": ("xgboost", bomb(block("a", tarfile.GNUTYPE_LONGLINK, size=200 * MIB), 200 * MIB), {"tar-extension"}),
    "a member of 300 MB that packs well": ("xgboost", bomb(block("d/a", size=300 * MIB), 300 * MIB), {"ratio"}),
    "a key of 300 MB in a booster": (
        "xgboost",
        bomb(block("xgboost-model", size=300 * MIB) + b'{"', 300 * MIB),
        {"ratio", "xgboost-model"},
    ),
    "a member of 20 GB by its header": ("xgboost", raw(block("d/a", size=7 << 30), b"x"), {"tar-truncated"}),
    "a member of 100 GB by its header": (
        "xgboost",
        raw(block("p", tarfile.XHDTYPE, b"21 size=107374182400\n"), block("d/a")),
        {"member-size"},
    ),
    "many global pax headers": ("xgboost", raw(*[block("g", tarfile.XGLTYPE, b"11 c=value\n")] * 17), {"tar-header"}),
    "too many members": ("xgboost", pack(MODEL, *[(f"d/{place}", b"") for place in range(1001)]), {"member-count"}),
    # members
    "an absolute path": ("xgboost", pack(MODEL, ("/etc/passwd", b"x")), {"absolute-path"}),
    "a parent path": ("xgboost", pack(MODEL, ("d/../../x", b"x")), {"parent-path"}),
    "a symbolic link": ("xgboost", pack(MODEL, entry("d/l", tarfile.SYMTYPE, linkname="/etc")), {"member-type"}),
    "a hard link": ("xgboost", pack(MODEL, entry("d/l", tarfile.LNKTYPE, linkname="xgboost-model")), {"member-type"}),
    "a device": ("xgboost", pack(MODEL, entry("d/n", tarfile.CHRTYPE)), {"member-type"}),
    "a pipe": ("xgboost", pack(MODEL, entry("d/f", tarfile.FIFOTYPE)), {"member-type"}),
    "a setuid file": ("xgboost", pack(MODEL, entry("d/s", mode=0o4755)), {"setuid"}),
    "a duplicate": ("xgboost", pack(MODEL, ("d/a", b"1"), ("./d/a", b"2")), {"duplicate"}),
    "names that collide by case": ("xgboost", pack(MODEL, ("d/a", b"1"), ("D/b", b"2")), {"case-collision"}),
    "a file where a folder is": ("xgboost", pack(MODEL, ("d/a", b"1"), ("d", b"2")), {"file-and-folder"}),
    "a control character": ("xgboost", pack(MODEL, ("d/\x1b[2J", b"")), {"name"}),
    "very deep folders": ("xgboost", pack(MODEL, ("a/" * 40 + "b", b"")), {"depth"}),
    "everything at once": (
        "xgboost",
        pack(("/a", b""), ("../b", b""), entry("c", tarfile.SYMTYPE), entry("d", mode=0o6755), ("e\n", b""), ("f.py", b""), ("g", b"")),
        {"absolute-path", "parent-path", "member-type", "setuid", "name", "code", "xgboost-root", "xgboost-model"},
    ),
    # XGBoost
    "xgboost: empty model": ("xgboost", pack(("xgboost-model", b"")), {"xgboost-model"}),
    "xgboost: text": ("xgboost", pack(("xgboost-model", b"hello")), {"xgboost-model"}),
    "xgboost: half a booster": ("xgboost", pack(("xgboost-model", booster()[:-20])), {"xgboost-model"}),
    "xgboost: a booster and more": ("xgboost", pack(("xgboost-model", booster() + b"{}")), {"xgboost-model"}),
    "xgboost: other JSON": ("xgboost", pack(("xgboost-model", b'{"a": 1}')), {"xgboost-model"}),
    "xgboost: a pickle": ("xgboost", pack(("xgboost-model", pickle.dumps({}))), {"code-format"}),
    "xgboost: a module beside it": ("xgboost", pack(MODEL, ("numpy/__init__.py", b"evil")), {"code"}),
    "xgboost: a manifest": ("xgboost", pack(MODEL, ("MAR-INF/MANIFEST.json", b"{}")), {"code"}),
    "xgboost: requirements at the root": ("xgboost", pack(MODEL, ("requirements.txt", b"evil")), {"xgboost-root"}),
    "xgboost: a folder around it": ("xgboost", pack(("model/xgboost-model", booster())), {"root-folder"}),
    # scikit-learn
    "sklearn: a pickle": ("sklearn", pack(("model.pkl", pickle.dumps({}))), {"code-format"}),
    "sklearn: a joblib and code": ("sklearn", pack(("model.joblib", pickle.dumps({})), ("inference.py", b"")), {"code-format", "code"}),
    "sklearn: no model": ("sklearn", pack(("readme.md", b"x")), {"sklearn-model"}),
    "sklearn: two models": ("sklearn", pack(("a.skops", skops()), ("b.skops", skops())), {"sklearn-model"}),
    "sklearn: no zip": ("sklearn", pack(("model.skops", b"hello")), {"sklearn-model"}),
    "sklearn: half a zip": ("sklearn", pack(("model.skops", skops()[:-30])), {"sklearn-model"}),
    "sklearn: another zip": ("sklearn", pack(("model.skops", zipped({"a": b"x"}))), {"sklearn-model"}),
    "sklearn: a zip that leaves its folder": (
        "sklearn",
        pack(("model.skops", zipped({"schema.json": b"", "../x": b""}))),
        {"sklearn-model"},
    ),
    "sklearn: a zip bomb": (
        "sklearn",
        pack(("model.skops", zipped({"schema.json": bytes(30 * MIB)}, zipfile.ZIP_DEFLATED))),
        {"sklearn-model"},
    ),
    "sklearn: a zip of very many entries": ("sklearn", pack(("model.skops", MANY_ENTRIES)), {"sklearn-model"}),
    "sklearn: a folder around it": ("sklearn", pack(("m/model.skops", skops())), {"root-folder"}),
    # ONNX
    "onnx: no model": ("onnx", pack(("model.bin", b"x")), {"onnx-model"}),
    "onnx: text": ("onnx", pack(("model.onnx", b"hello")), {"onnx-model"}),
    "onnx: empty": ("onnx", pack(("model.onnx", b"")), {"onnx-model"}),
    "onnx: cut off": ("onnx", pack(("model.onnx", onnx()[:-1])), {"onnx-model"}),
    "onnx: without outputs": ("onnx", pack(("model.onnx", onnx(graph=message(2, "g")))), {"onnx-model"}),
    "onnx: two models": ("onnx", pack(("a.onnx", onnx()), ("b.onnx", onnx())), {"onnx-model"}),
    "onnx: data outside": ("onnx", pack(("m.onnx", onnx(graph=onnx_graph(initializers=[tensor("../../etc/passwd")])))), {"onnx-model"}),
    "onnx: data outside, in disguise": (
        "onnx",
        pack(("m.onnx", onnx(graph=onnx_graph(initializers=[tensor("/etc/passwd", swapped=True)])))),
        {"onnx-model"},
    ),
    "onnx: data outside, in a subgraph": (
        "onnx",
        pack(("m.onnx", onnx(graph=onnx_graph(message(1, message(5, message(6, message(5, tensor("/etc/passwd"))))))))),
        {"onnx-model"},
    ),
    "onnx: data that are missing": ("onnx", pack(("m.onnx", onnx(graph=onnx_graph(initializers=[tensor("w.bin")])))), {"onnx-data"}),
    "onnx: code": ("onnx", pack(("m.onnx", onnx()), ("lib/op.so", b"\x7fELF")), {"code"}),
    # PyTorch
    "pytorch: torch.save": ("pytorch", pack(("model.pth", torch_saved())), {"code-format"}),
    "pytorch: code": ("pytorch", pack(("model.pt", torch_script()), ("code/inference.py", b"")), {"code"}),
    "pytorch: no model": ("pytorch", pack(("weights.bin", b"x")), {"pytorch-model"}),
    "pytorch: two models": ("pytorch", pack(("a.pt", torch_script()), ("b.pt", torch_script())), {"pytorch-model"}),
    "pytorch: the old format": ("pytorch", pack(("model.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")), {"pytorch-model"}),
    "pytorch: another zip": ("pytorch", pack(("model.pt", zipped({"a/b": b"x"}))), {"pytorch-model"}),
    "pytorch: safetensors that overlap": (
        "pytorch",
        pack(("m.safetensors", safetensors({"a": {"data_offsets": [0, 8]}, "b": {"data_offsets": [4, 8]}}))),
        {"pytorch-model"},
    ),
    "pytorch: safetensors with hidden data": ("pytorch", pack(("m.safetensors", safetensors(data=bytes(9)))), {"pytorch-model"}),
    "pytorch: safetensors of a huge header": ("pytorch", pack(("m.safetensors", b"\xff" * 7 + b"\x00" + b"{}")), {"pytorch-model"}),
    "pytorch: a pickle in a folder": ("pytorch", pack(("model.pt", torch_script()), ("d/x.pkl", b"")), {"code-format"}),
    # TensorFlow
    "tensorflow: no version": ("tensorflow", tree({"saved_model.pb": saved_model()}), {"tensorflow-model"}),
    "tensorflow: version 0": ("tensorflow", tree({"0/saved_model.pb": saved_model()}), {"tensorflow-model"}),
    "tensorflow: text": ("tensorflow", tree({"1/saved_model.pb": b"hello"}), {"tensorflow-model"}),
    "tensorflow: no graph": ("tensorflow", tree({"1/saved_model.pb": number(1, 1)}), {"tensorflow-model"}),
    "tensorflow: a graph that reads files": ("tensorflow", tree({"1/saved_model.pb": saved_model("ReadFile")}), {"code"}),
    "tensorflow: Python in a function": ("tensorflow", tree({"1/saved_model.pb": saved_model(inside_function=["EagerPyFunc"])}), {"code"}),
    "tensorflow: an asset outside": (
        "tensorflow",
        tree({"1/saved_model.pb": saved_model() + message(2, message(2, b"") + message(6, message(2, "../../x")))}),
        {"tensorflow-model"},
    ),
    "tensorflow: a part of the variables": (
        "tensorflow",
        tree({"1/saved_model.pb": saved_model(), "1/variables/variables.index": b"", "1/variables/variables.data-00001-of-00002": b""}),
        {"tensorflow-model"},
    ),
    "tensorflow: two models": (
        "tensorflow",
        tree({"a/1/saved_model.pb": saved_model(), "b/1/saved_model.pb": saved_model()}),
        {"tensorflow-model"},
    ),
    # Triton
    "triton: nothing": ("triton", pack(folder("m")), {"triton-layout"}),
    "triton: a file at the root": ("triton", triton(**{"model.onnx": b""}), {"triton-layout"}),
    "triton: no configuration": ("triton", pack(("m/1/model.onnx", onnx())), {"triton-layout"}),
    "triton: no version": ("triton", pack(("m/config.pbtxt", CONFIG.encode()), ("m/model.txt", b"")), {"triton-layout"}),
    "triton: no model": ("triton", triton(model="other.txt", content=b""), {"triton-layout"}),
    "triton: a broken configuration": ("triton", triton("name: {"), {"triton-config"}),
    "triton: a file elsewhere": ("triton", triton(CONFIG + 'cc_model_filenames { key: "7.5" value: "../../x" }'), {"triton-config"}),
    "triton: a file elsewhere, in disguise": ("triton", triton(CONFIG + 'a { b [{ c: "\\x2fetc" "/x" }] }'), {"triton-config"}),
    "triton: a configuration of escapes": ("triton", triton(CONFIG + 'a: "' + '\\"' * 130_000), {"triton-config"}),
    "triton: a configuration of brackets": ("triton", triton("a {" * 50_000), {"triton-config"}),
    "triton: another name": ("triton", triton(name="other"), {"triton-config"}),
    "triton: neither backend nor platform": ("triton", triton("max_batch_size: 1"), {"triton-config"}),
    "triton: a broken model": ("triton", triton(content=b"hello"), {"triton-config"}),
    "triton: Python": ("triton", triton('backend: "python"', model="model.py", content=b""), {"code-format", "triton-layout"}),
    "triton: Python in disguise": (
        "triton",
        triton('backend: "\\160yth" "on"', model="model.txt", content=b""),
        {"code-format", "triton-layout"},
    ),
    "triton: an unknown back end": ("triton", triton('backend: "vllm"', model="model.json", content=b"{}"), {"code-format"}),
    "triton: a library": ("triton", triton(**{"m/libtriton_m.so": b"\x7fELF"}), {"code"}),
    "triton: torch.save": ("triton", triton('backend: "pytorch"', model="model.pt", content=torch_saved()), {"code-format"}),
    "triton: two models": (
        "triton",
        pack(*[(f"{m}/config.pbtxt", b'backend: "fil"') for m in "ab"], *[(f"{m}/1/model.txt", b"x") for m in "ab"]),
        {"triton-ensemble"},
    ),
    "triton: an ensemble of six": ("triton", triton_ensemble(6), {"triton-ensemble"}),
    "triton: an ensemble of strangers": ("triton", triton_ensemble(2, ["m0", "stranger"]), {"triton-ensemble"}),
    "triton: a folder around it": (
        "triton",
        pack(("x/m/config.pbtxt", CONFIG.encode()), ("x/m/1/model.onnx", onnx())),
        {"root-folder", "triton-layout"},
    ),
}
"""Framework, artifact, the rules it breaks; by name."""
