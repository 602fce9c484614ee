"""Starting, using and stopping a local cloud."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from mme_local import toolchain
from mme_local.addresses import local_api_url
from mme_local.credentials import Credentials
from mme_local.fault_client import FaultsClient
from mme_local.folders import end_processes_of, forget_run, make_run
from mme_local.gateway import Orders
from mme_local.settings import ACCOUNT, REGION, LocalSettings

if TYPE_CHECKING:
    import boto3

__all__ = ["CloudStartError", "LocalCloud"]

_LOG_TAIL_LINES = 20
_KILL_SECONDS = 5.0


class CloudStartError(RuntimeError):
    """The local cloud did not come up; the text has the end of its log."""


class LocalCloud:
    """An AWS of one machine, in a process of its own; a context manager.

    Args:
        port: loopback port; a free one by default.
        directory: folder for its log and its CDK state; a temporary one by default, which goes with the cloud.
        settings: further settings.

    Attributes:
        region: AWS region.
        account: account id.
        endpoint_url: where every service answers, once started.
        admin: a real IAM user with AdministratorAccess; the account's root key is refused.
        directory: the folder.
        faults: fault control, for a cloud with ``LocalSettings(faults=True)``.
    """

    region = REGION
    account = ACCOUNT

    def __init__(self, port: int | None = None, directory: Path | None = None, settings: LocalSettings = LocalSettings()) -> None:  # noqa: B008 - frozen
        self._port, self._settings = port, settings
        self._ephemeral = directory is None
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._run: Path | None = None
        self._log: BinaryIO | None = None
        self.admin = Credentials.generate()
        self.endpoint_url = ""
        self.faults = FaultsClient(lambda: self.endpoint_url)

    def __enter__(self) -> LocalCloud:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def directory(self) -> Path:
        """The cloud's folder; raises `RuntimeError` before the start of a cloud with a temporary one."""
        if self._directory is None:
            raise RuntimeError("the local cloud is not running: start it first")
        return self._directory

    @property
    def log_file(self) -> Path:
        """The gateway's log."""
        return self.directory / "gateway.log"

    @property
    def running(self) -> bool:
        """Whether the gateway process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it answers; raises `CloudStartError`."""
        if self._process is not None:
            raise RuntimeError("the local cloud has been started already")
        listener = self._listen()
        if self._ephemeral:
            self._directory = Path(tempfile.mkdtemp(prefix="mme-cloud-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self._directory = self.directory.resolve()
        lock = self._claim_directory(listener)
        port = listener.getsockname()[1]
        self.endpoint_url = f"http://127.0.0.1:{port}"
        run = self._run = make_run(self.directory)
        orders = Orders(listener.fileno(), lock.fileno(), port, self.directory, run, self._ephemeral, self.admin, self._settings)
        try:
            # Kept open to be read: a gateway that fails takes a temporary folder with it.
            self._log = self.log_file.open("w+b")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mme_local.gateway"],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=self._gateway_environment(port, run),
                cwd=self.directory,
                pass_fds=[listener.fileno(), lock.fileno()],
                start_new_session=True,
                text=True,
            )
        finally:
            listener.close()
            lock.close()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once: the wait below tells why
            self._process.stdin.write(orders.to_json() + "\n")
            self._process.stdin.flush()
        self._wait_until_healthy()

    def stop(self) -> None:
        """Stop it; nothing stays behind: no process, no folder but a given one. Does nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(self._settings.stop_seconds)
            except subprocess.TimeoutExpired:
                _kill_group(process.pid)
                process.wait(_KILL_SECONDS)
        _kill_group(process.pid)
        with suppress(BrokenPipeError):
            process.stdin.close()
        if self._log is not None:
            self._log.close()
        # Also what a thread of the gateway wrote there while it ended.
        assert self._run is not None
        end_processes_of(self._run)
        forget_run(self.directory, self._run)
        if self._ephemeral:
            shutil.rmtree(self.directory, ignore_errors=True)
            self._directory = None
        self.endpoint_url = ""

    def environment(self, credentials: Credentials | None = None) -> dict[str, str]:
        """Variables for the AWS CLI, boto3 and ``cdk`` as a principal, on top of an environment without other AWS settings.

        Args:
            credentials: the principal; the administrator by default.
        """
        keys = credentials or self.admin
        variables = {
            "AWS_ACCESS_KEY_ID": keys.access_key_id,
            "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            # An address instead of a name makes the SDKs put the bucket into the path.
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            **toolchain.cdk_environment(self.directory / "cdk"),
        }
        if keys.session_token is not None:
            variables["AWS_SESSION_TOKEN"] = keys.session_token
        return variables

    def session(self, credentials: Credentials | None = None) -> boto3.Session:
        """A boto3 session of a principal (the administrator by default); clients need ``endpoint_url``, so see `client`."""
        import boto3
        import botocore.session

        keys = credentials or self.admin
        core = botocore.session.Session()
        # Service models are large; one loader reads each of them once.
        core.register_component("data_loader", _model_loader())
        core.set_credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        return boto3.Session(botocore_session=core, region_name=self.region)

    def client(self, service: str, credentials: Credentials | None = None, **options: Any) -> Any:
        """A boto3 client of a service for a principal (the administrator by default); ``options`` go to boto3."""
        client: Any = self.session(credentials).client
        return client(service, endpoint_url=self.endpoint_url, **options)

    def assume_role(
        self, role_arn: str, session_name: str, *, tags: dict[str, str] | None = None, source: Credentials | None = None
    ) -> Credentials:
        """A session of a role.

        Args:
            role_arn: the role.
            session_name: name of the session.
            tags: session tags.
            source: who assumes it; the administrator by default.
        """
        sts = self.client("sts", source)
        given = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
        keys = sts.assume_role(RoleArn=role_arn, RoleSessionName=session_name, Tags=given)["Credentials"]
        return Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])

    def local_url(self, url: str) -> str:
        """Where the local cloud serves the URL of an API Gateway stage.

        Args:
            url: such as ``https://abc123.execute-api.us-east-1.amazonaws.com/v1/``, as a stack's output has it.
        """
        return local_api_url(url, self.endpoint_url)

    def status(self) -> dict[str, Any]:
        """Endpoints, instances and the models in them: the document of ``GET /_mme/status``."""
        document: dict[str, Any] = json.loads(self._ask("GET", "/_mme/status"))
        return document

    def calls(self) -> dict[str, dict[str, dict[str, int]]]:
        """How often AWS was called since the start or `reset`: the document of ``GET /_mme/calls``.

        ``calls`` has the requests by service and operation, and executions of functions as Lambda's ``Invoke``; ``by_services`` has what
        SageMaker itself did with execution roles.
        """
        document: dict[str, dict[str, dict[str, int]]] = json.loads(self._ask("GET", "/_mme/calls"))
        return document

    def reset(self) -> None:
        """Forget every resource and stop every fleet; the administrator and its keys stay."""
        self._ask("POST", "/_mme/reset")

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.endpoint_url + path, method=method)  # noqa: S310 - our own http URL
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own http URL
            body: bytes = answer.read()
            return body

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self._port or 0))
        except OSError as error:
            listener.close()
            raise CloudStartError(f"Port {self._port} of 127.0.0.1 cannot be used ({error.strerror}): choose another one.") from error
        listener.listen(128)
        return listener

    def _claim_directory(self, listener: socket.socket) -> BinaryIO:
        """A locked file that the gateway keeps open: the lock goes with the process."""
        lock = (self.directory / "lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            listener.close()
            raise CloudStartError(
                f"The folder {self.directory} belongs to a local cloud that is running: stop it or use another folder."
            ) from error
        return lock

    def _gateway_environment(self, port: int, run: Path) -> dict[str, str]:
        """The whole environment of the gateway: the emulator reads it at import, and Lambda workers inherit it."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(run),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": str(run / "tmp"),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "MINISTACK_ACCOUNT_ID": self.account,
            "MINISTACK_REGION": self.region,
            "AUTH": "true",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "PERSIST_STATE": "0",
            "STATE_DIR": str(run / "state"),
            "S3_DATA_DIR": str(run / "s3"),
            "LOG_LEVEL": self._settings.log_level,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _wait_until_healthy(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._settings.start_seconds
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._fail(f"it ended with status {self._process.returncode}")
            try:
                self._ask_health(max(0.01, min(1.0, deadline - time.monotonic())))
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
            else:
                return
        self._fail(f"it did not answer within {self._settings.start_seconds:g} s")

    def _ask_health(self, timeout_seconds: float) -> None:
        with urllib.request.urlopen(f"{self.endpoint_url}/_ministack/health", timeout=timeout_seconds) as answer:  # noqa: S310 - our own http URL
            answer.read()

    def _fail(self, what: str) -> None:
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        tail = "\n".join(lines[-_LOG_TAIL_LINES:])
        self.stop()
        raise CloudStartError(f"The local cloud did not start: {what}. The end of its log:\n{tail}")


@cache
def _model_loader() -> Any:
    import botocore.session

    return botocore.session.Session().get_component("data_loader")


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
