"""The library for applications: a tenant's model by name, whatever stands behind it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self, TypeVar, overload

import boto3
from botocore.exceptions import ClientError

from mme_facts.grammar import GrammarError, check_model_id, check_tenant_id
from mme_facts.problems import PROBLEMS
from mme_facts.telemetry import LineSettings
from mme_tenancy.aws.clients import dynamodb_client, runtime_client, sts_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.failures import or_unavailable
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.aws.tenant_sessions import TenantSessions, assume_tenant
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.errors import ForbiddenError, InvalidRequestError, TenancyError
from mme_tenancy.invocation import InvocationRequest, Invoker, ModelReply
from mme_tenancy.invocation_path import Addressee, InvocationPath, Lookup, PathSettings, Served, looked_up_in
from mme_tenancy.request_line import RequestLine
from mme_tenancy.routes import Target
from mme_tenancy.serializers import Json, Serializer
from mme_tenancy.streaming import AnswerStream

__all__ = ["Answer", "AsyncTenantClient", "Path", "TenantClient"]

_V = TypeVar("_V")
_A = TypeVar("_A")
_TIMEOUT_SECONDS = 60.0
_ASYNC_THREADS = 64
_LINE = LineSettings()
_OK = 200
_INTERNAL = PROBLEMS["internal-error"]
_DENIED = frozenset({"AccessDenied", "AccessDeniedException"})


class Path(Protocol):
    """The part of `InvocationPath` that clients use; `mme_tenancy.testing_client.FakeTenantClient` has one without AWS."""

    def invoke(
        self,
        tenant: str,
        model: str,
        request: InvocationRequest,
        *,
        deadline: float,
        sticky_key: str,
        began: Callable[[Target, bool | None], None] = ...,
    ) -> Served:
        """Invoke a tenant's model, as `InvocationPath.invoke`."""
        ...

    def stream(
        self,
        tenant: str,
        model: str,
        request: InvocationRequest,
        *,
        deadline: float,
        first_deadline: float,
        opened: Callable[[Served], None] = ...,
        ended: Callable[[TenancyError | None, int], None] = ...,
        began: Callable[[Target, bool | None], None] = ...,
    ) -> AnswerStream:
        """Invoke a tenant's model and have its answer part by part, as `InvocationPath.stream`."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer.

    Attributes:
        body: the payload.
        content_type: its media type.
        version: id of the version that answered.
        attempts: how many requests were sent for it.
        cold: whether the model had to be loaded first.
    """

    body: bytes
    content_type: str | None
    version: str
    attempts: int
    cold: bool


class TenantClient:
    """Invokes tenants' models at SageMaker, by the routes of the registry; safe for threads.

    It needs ``dynamodb:BatchGetItem`` on the registry's table and ``sagemaker:InvokeEndpoint``, for streams
    ``sagemaker:InvokeEndpointWithResponseStream``; with ``dynamodb:Query`` on the partition
    ``CHANGES`` routes are read again only when they changed. With a session of a role of `TenantAccess`
    it serves that session's tenant and no other: IAM confines it, and `ForbiddenError` says so of another tenant. With ``tenant_role_arn``
    it opens such a session for each tenant it acts for, so that a mistake of the application cannot cross tenants. Close it, or use it in a
    ``with`` statement, to end the threads that renew routes.

    Args:
        table_name: the registry's table.
        session: whose rights are used. Default: the process's own.
        tenant_role_arn: role that is assumed for each tenant, with the tenant as its session tag. Default: none is.
        settings: how long routes are kept. Default: `PathSettings` as it stands.
        log: gets the log line of each request, in CloudWatch's embedded metric format, such as ``print`` where standard output goes to a
            log group. It gets one at a time, from all clients of the process, so it needs no lock, and a slow one holds up all requests.
            Default: no lines are made, and these requests count neither for heat nor for `mme tenants top`.

    Examples:
        >>> client = TenantClient(table_name="registry")  # doctest: +SKIP
        >>> client.predict("acme", "churn", [[1.0, 2.0]])  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        table_name: str,
        session: boto3.Session | None = None,
        tenant_role_arn: str | None = None,
        settings: PathSettings | None = None,
        log: Callable[[str], object] | None = None,
    ) -> None:
        session = boto3.Session() if session is None else session
        clock = SystemClock()
        renewals = ThreadPoolExecutor(2, thread_name_prefix="mme-routes")
        tenancy, invoking = None, session
        if tenant_role_arn is not None:
            tenancy = TenantSessions(assume_tenant(partial(sts_client, session), tenant_role_arn), clock)
            invoking = tenancy.boto3_session(session)
        registry = DynamoRegistry(dynamodb_client(session), table_name)
        path = InvocationPath(
            or_unavailable(_or_forbidden(looked_up_in(registry))),
            Invoker(SageMakerRuntime(lambda seconds: runtime_client(invoking, seconds)), clock, random.random),
            clock,
            background=renewals.submit,
            tenancy=tenancy,
            settings=settings,
            changes=registry.changes,
        )
        self._use(path, clock, partial(renewals.shutdown, wait=False, cancel_futures=True), log)

    def _use(self, path: Path, clock: Clock, close: Callable[[], None], log: Callable[[str], object] | None = None) -> None:
        self._path, self._clock, self._close, self._log = path, clock, close, log

    def close(self) -> None:
        """End the threads that renew routes; calls under way end by themselves."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def invoke(
        self,
        tenant: str,
        model: str,
        body: bytes,
        *,
        content_type: str | None = None,
        accept: str | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        sticky_key: str | None = None,
        idempotent: bool = True,
    ) -> Answer:
        """Invoke a model with a payload.

        Args:
            tenant: the tenant's id.
            model: the model's id.
            body: the payload, at most 6,291,456 bytes.
            content_type: its media type; ``None`` leaves it to the container.
            accept: media type of the answer; ``None`` leaves it to the container.
            timeout_seconds: when the answer is no longer wanted; cold models are waited for until then.
            sticky_key: such as a user's id: the same version answers the same key while a canary runs. Default: chosen anew each time.
            idempotent: whether the model may work on the payload twice when an answer is lost.

        Raises:
            TenancyError: one of its kinds, each a row of `mme_facts.problems`.
        """
        _check(tenant, model, timeout_seconds=timeout_seconds)
        request = InvocationRequest(body, content_type, accept, idempotent=idempotent)
        key = repr(random.random()) if sticky_key is None else sticky_key  # noqa: S311 - spreads requests, protects nothing
        if self._log is None:
            return _answer(self._path.invoke(tenant, model, request, deadline=self._deadline(timeout_seconds), sticky_key=key))
        with self._line(self._log, tenant, model, body) as line:
            served = self._path.invoke(tenant, model, request, deadline=self._deadline(timeout_seconds), sticky_key=key, began=line.began)
            line.ended(served)
            answer = _answer(served)
        line.write(_OK)
        return answer

    def stream(
        self,
        tenant: str,
        model: str,
        body: bytes,
        *,
        content_type: str | None = None,
        accept: str | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        first_part_seconds: float | None = None,
        idempotent: bool = True,
    ) -> AnswerStream:
        """Invoke a model with a placement of its own and get its answer part by part, as it comes.

        It returns when the first part is there. Failures until then are retried by the rules of `invoke`; later ones end the answer with
        an error, because a caller may have used what came. The active version answers, never a canary.

        Args:
            tenant: the tenant's id.
            model: the model's id.
            body: the payload, at most 6,291,456 bytes.
            content_type: its media type; ``None`` leaves it to the container.
            accept: media type of the answer; ``None`` leaves it to the container.
            timeout_seconds: when the whole answer is no longer wanted.
            first_part_seconds: when its first part is no longer wanted. Default: ``timeout_seconds``.
            idempotent: whether the model may work on the payload twice when an answer is lost before it began.

        Raises:
            InvalidRequestError: a shared endpoint serves the model; nothing was sent.
            TenancyError: one of its kinds, each a row of `mme_facts.problems`.
        """
        first = timeout_seconds if first_part_seconds is None else first_part_seconds
        _check(tenant, model, timeout_seconds=timeout_seconds, first_part_seconds=first)
        request, now = InvocationRequest(body, content_type, accept, idempotent=idempotent), self._clock.monotonic()
        call = partial(self._path.stream, tenant, model, request, deadline=now + timeout_seconds, first_deadline=now + first)
        if self._log is None:
            return call()

        def ended(error: TenancyError | None, size_bytes: int) -> None:
            line.fields["bytes_out"] = size_bytes
            if error is not None:
                line.failed(error)
            line.write(_OK if error is None else error.problem.status)

        with self._line(self._log, tenant, model, body) as line:
            return call(opened=line.ended, ended=ended, began=line.began)

    @contextmanager
    def _line(self, log: Callable[[str], object], tenant: str, model: str, body: bytes) -> Iterator[RequestLine]:
        """The line of a request that begins; written here if the block raises, whatever ends it: Ctrl-C, or a mistake of ours."""
        line = RequestLine(self._clock, _LINE, log)
        line.fields |= {"tenant": tenant, "model": model, "bytes_in": len(body), "sampled": True}
        try:
            yield line
        except TenancyError as error:
            line.failed(error)
            line.write(error.problem.status)
            raise
        except BaseException as error:
            # A mistake's text may quote a payload: the line names the kind alone.
            line.fields |= {"problem": _INTERNAL.slug, "exception": type(error).__name__}
            line.write(_INTERNAL.status)
            raise

    def _deadline(self, timeout_seconds: float) -> float:
        return self._clock.monotonic() + timeout_seconds

    @overload
    def predict(self, tenant: str, model: str, value: _V, *, serializer: Serializer[_V, _A], **options: Any) -> _A: ...
    @overload
    def predict(self, tenant: str, model: str, value: object, **options: Any) -> Any: ...
    def predict(self, tenant: str, model: str, value: Any, *, serializer: Serializer[Any, Any] | None = None, **options: Any) -> Any:
        """Invoke a model with a value and get a value back.

        Args:
            tenant: the tenant's id.
            model: the model's id.
            value: what the serializer takes.
            serializer: how it is sent and read: `Json`, `Csv`, `Numpy` or your own. Default: `Json`.
            **options: ``timeout_seconds``, ``sticky_key`` and ``idempotent`` of `invoke`.

        Raises:
            TenancyError: as `invoke`; `AnswerUnreadableError` when the answer is in another format.
        """
        serializer = Json() if serializer is None else serializer
        kind = serializer.content_type
        answer = self.invoke(tenant, model, serializer.dump(value), content_type=kind, accept=kind, **options)
        return serializer.load(ModelReply(answer.body, answer.content_type))


def _close_unread(opening: Future[AnswerStream]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _check(tenant: str, model: str, **seconds: float) -> None:
    try:
        check_tenant_id(tenant)
        check_model_id(model)
    except GrammarError as error:
        raise InvalidRequestError.of_grammar(error) from error
    for name, value in seconds.items():
        if not value > 0:
            raise InvalidRequestError.of_field(name, value, "a number above 0")


def _or_forbidden(look_up: Lookup) -> Lookup:
    """``look_up``, which says whose records the session may not read."""

    def looked_up(tenant: str, model: str) -> Addressee:
        try:
            return look_up(tenant, model)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _DENIED:
                raise
            detail = f"the session may not read the records of tenant {tenant!r}"
            allowed = "the session's own tenant, by a role of TenantAccess(registry=...)"
            raise ForbiddenError(detail, reason="other-tenant", field="tenant", value=tenant, allowed=allowed) from error

    return looked_up


def _answer(served: Served) -> Answer:
    reply = served.outcome.answer()
    return Answer(reply.body, reply.content_type, served.target.version, served.outcome.attempts, served.outcome.cold)


class AsyncTenantClient:
    """`TenantClient` for asyncio, on threads of its own.

    Threads instead of aiobotocore: that pins one botocore exactly, which would pin the boto3 of every application and of Lambda; and
    this way both clients have one implementation. A cancelled call is no longer waited for, but its request goes on to its end.

    Args:
        client: the client whose calls are made.
        threads: calls at the same time.
    """

    def __init__(self, client: TenantClient, *, threads: int = _ASYNC_THREADS) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="mme-tenant-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the client and its threads; calls under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def invoke(self, tenant: str, model: str, body: bytes, **options: Any) -> Answer:
        """As `TenantClient.invoke`."""
        return await self._run(partial(self._client.invoke, tenant, model, body, **options))

    @overload
    async def predict(self, tenant: str, model: str, value: _V, *, serializer: Serializer[_V, _A], **options: Any) -> _A: ...
    @overload
    async def predict(self, tenant: str, model: str, value: object, **options: Any) -> Any: ...
    async def predict(self, tenant: str, model: str, value: Any, **options: Any) -> Any:
        """As `TenantClient.predict`."""
        return await self._run(partial(self._client.predict, tenant, model, value, **options))

    async def stream(self, tenant: str, model: str, body: bytes, **options: Any) -> AsyncIterator[bytes]:
        """As `TenantClient.stream`: iterate over it. Whoever leaves before its end should close it (``aclosing``), as any such iterator."""
        opening = self._threads.submit(partial(self._client.stream, tenant, model, body, **options))
        try:
            parts = await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unread)
            raise
        try:
            while (part := await self._run(partial(next, parts, None))) is not None:
                yield part
        finally:
            # Not on this thread: a part may be waited for on another, and closing waits for that.
            try:
                self._threads.submit(parts.close)
            except RuntimeError:
                parts.close()

    async def _run(self, call: Callable[[], _A]) -> _A:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
