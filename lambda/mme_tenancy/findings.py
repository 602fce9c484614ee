"""The rules of artifacts, each with its fix, and the list that an inspection fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mme_tenancy.versions import Reason

__all__ = ["RULES", "Findings", "Rule"]

_MAX_FINDINGS = 20
_SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of artifacts.

    Attributes:
        refuses: what it refuses, or warns of.
        fix: what to do.
        warns: whether the artifact is admitted all the same.
    """

    refuses: str
    fix: str
    warns: bool = False


_PACK_AGAIN = "pack the archive again with tar"
RULES: Mapping[str, Rule] = {
    "size": Rule("another size than the declared one", "register the artifact's real size"),
    "sha256": Rule("another SHA-256 than the declared one", "register the artifact's real digest, or upload the right file"),
    "gzip": Rule("a file that is not gzip, or whose gzip data or checksum are damaged", "upload a .tar.gz as the tool wrote it"),
    "gzip-truncated": Rule("a gzip stream that ends too early", "compress and upload the archive again"),
    "gzip-members": Rule("several gzip streams in a row", "compress the archive as one gzip stream"),
    "gzip-trailer": Rule("data behind the gzip stream", "upload the .tar.gz as the tool wrote it"),
    "tar-header": Rule("a header that is broken or that unpackers read differently", _PACK_AGAIN),
    "tar-truncated": Rule("a tar archive that ends inside a member or without its end mark", "pack and upload the archive again"),
    "tar-end": Rule("data behind the end of the tar archive", _PACK_AGAIN),
    "tar-extension": Rule(
        "a pax header or GNU long name above the limit",
        "pack the archive again without extended attributes and with short names (tar --format=ustar)",
    ),
    "tar-unsupported": Rule(
        "sparse files, unknown types of members, pax records that change the reading",
        "pack plain files and folders only, with UTF-8 names (tar --format=ustar, without --sparse)",
    ),
    "unpacked-size": Rule("an archive that unpacks to more than the limit", "upload a smaller model"),
    "member-size": Rule("a member above the limit", "upload a smaller model"),
    "ratio": Rule("an archive that unpacks to far more than its own size", "upload a model, not padding"),
    "member-count": Rule("more members than the limit", "pack the files of one model only"),
    "depth": Rule("folders nested deeper than the limit", "pack from inside the model's folder (tar -C folder ...)"),
    "name": Rule("a name that is empty, too long, not UTF-8, or has control characters or a backslash", "rename the file"),
    "absolute-path": Rule("an absolute path", "pack with relative paths (tar -C folder ...)"),
    "parent-path": Rule("a path with '..'", "pack from inside the folder (tar -C folder ...)"),
    "member-type": Rule("links, devices and pipes", "pack plain files and folders only (tar --dereference)"),
    "setuid": Rule("a file with the setuid or setgid bit", "remove the bit (chmod ug-s) and pack again"),
    "duplicate": Rule("two members with the same name", "pack every file once"),
    "case-collision": Rule("two names that differ in case or Unicode form only", "rename one of the files"),
    "file-and-folder": Rule("a name that is a file and a folder", "rename one of the two"),
    "code": Rule("code beside a model, or a manifest that chooses what code runs", "pack the model only: the container brings the code"),
    "code-format": Rule(
        "a format that runs code when it is loaded, unless the tenant's tier allows it",
        "save the model in a format without code (XGBoost: .ubj, scikit-learn: skops or ONNX, PyTorch: TorchScript or safetensors), "
        "or ask for a tier that allows code",
    ),
    "unsafe-code": Rule(
        "allowed code that reaches for processes, files, the network or the interpreter (picklescan's list)",
        "leave it out of the model (pickle no functions of other modules) or of the code, or save the model in a format without code",
    ),
    "unscanned-code": Rule(
        "allowed code that cannot be scanned: compiled code, what is no Python, a pickle whose imports cannot be told",
        "bring it with the container's image, or write the model again with pickle.dump or joblib.dump (no lz4, xz presets up to 6)",
    ),
    "unknown-import": Rule(
        "a pickle that imports from packages which the framework's container may lack",
        "make sure that the container brings the package, or ask for a dedicated placement with a container of its own",
        warns=True,
    ),
    "root-folder": Rule(
        "the model inside a folder instead of at the root", "pack from inside that folder (tar -czf model.tar.gz -C folder ...)"
    ),
    "xgboost-root": Rule(
        "XGBoost: another file than xgboost-model at the root, where the image takes every file as a model",
        "leave only xgboost-model at the root (on macOS: COPYFILE_DISABLE=1 tar ...)",
    ),
    "xgboost-model": Rule(
        "XGBoost: no xgboost-model at the root, or one that is no booster in UBJSON or JSON",
        "save the booster with Booster.save_model and put it at the root as xgboost-model (tar -czf model.tar.gz xgboost-model)",
    ),
    "sklearn-model": Rule(
        "scikit-learn: no model file (.skops, .joblib, .pkl) at the root, several, or one that is not what its name says",
        "put exactly one model file at the root (skops.io.dump, or joblib.dump where the tier allows code)",
    ),
    "onnx-model": Rule(
        "ONNX: no .onnx file at the root, several, one that is no whole model, or external data outside the archive",
        "save the model with onnx.save and put it at the root as model.onnx",
    ),
    "onnx-data": Rule("ONNX: external data that are not in the archive", "pack the files of external data beside the model"),
    "pytorch-model": Rule(
        "PyTorch: no model file (.pt, .pth, .safetensors) at the root, several, or one that is not what its name says",
        "put exactly one model file at the root (torch.jit.save, or safetensors.torch.save_file)",
    ),
    "tensorflow-model": Rule(
        "TensorFlow: no <version>/saved_model.pb, several models, a broken one, or variables that are not complete",
        "save with tf.saved_model.save(model, '1') and pack that folder (tar -czf model.tar.gz 1)",
    ),
    "triton-layout": Rule(
        "Triton: files at the root, a folder without config.pbtxt, without a numeric version, or without the model's file",
        "pack <model>/config.pbtxt and <model>/1/<model file> (tar -czf model.tar.gz <model>)",
    ),
    "triton-config": Rule(
        "Triton: a config.pbtxt or model file that is broken, another name than the folder's, neither backend nor platform",
        "correct the file: name as the folder, and a backend",
    ),
    "triton-ensemble": Rule(
        "Triton: several models without one ensemble that calls exactly them, or more than five of them",
        "pack one model, or one ensemble with its models (at most five)",
    ),
    "inspection-time": Rule(
        "an artifact whose inspection takes longer than there is time",
        "write the model in fewer and larger parts (XGBoost: .ubj instead of .json), or upload a smaller model",
    ),
    "load-time": Rule(
        "a model whose load takes longer than the 60 seconds in which a multi-model endpoint must answer",
        "ask for a dedicated placement, which loads a model before it takes requests and may take up to an hour, or bring a smaller model",
        warns=True,
    ),
    "ignored": Rule(
        "a requirements.txt, or a model's own code where the container does not run it",
        "bring libraries and code with the container's image, or ask for a dedicated placement, which may have an image of its own",
        warns=True,
    ),
}
"""Every rule, by the short stable name that findings carry."""


class Findings:
    """Collects what breaks a rule; bounded."""

    def __init__(self) -> None:
        self.refusals: list[Reason] = []
        self.warnings: list[Reason] = []

    def add(self, rule: str, member: str | None, detail: str, fix: str | None = None) -> None:
        """Note that ``member`` breaks ``rule``; ``fix`` replaces the rule's own."""
        known = RULES[rule]
        target = self.warnings if known.warns else self.refusals
        if len(target) < _MAX_FINDINGS:
            target.append(Reason(rule, detail, fix or known.fix, None if member is None else _shown(member)))


def _shown(name: str) -> str:
    text = name[: 2 * _SHOWN_CHARACTERS].encode("unicode_escape").decode("ascii")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
