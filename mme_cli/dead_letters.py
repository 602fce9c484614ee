"""``mme dead-letters``: events of the platform's functions that failed for good, and the way to send them again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mme_cli.errors import CommandError
from mme_cli.sessions import Asked

__all__ = ["Letter", "Redriven", "Waiting", "event_of", "letters", "redrive", "waiting"]

_HANDLERS = "mme_tenancy.handlers."
_BATCH = 10
_LOOK_SECONDS = 30
_SEND_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Waiting:
    """A function of the platform and its dead-letter queue.

    Attributes:
        function: the function's name.
        handler: its handler.
        queue: the queue's name.
        url: the queue's address.
        messages: about how many wait.
    """

    function: str
    handler: str
    queue: str
    url: str
    messages: int

    def document(self) -> dict[str, object]:
        """One JSON document."""
        return {"function": self.function, "handler": self.handler, "queue": self.queue, "messages": self.messages}


@dataclass(frozen=True, slots=True)
class Letter:
    """One event that failed for good.

    Attributes:
        message_id: the message's id.
        sent_at: epoch milliseconds.
        event: the event; ``None`` if the message holds none.
        error: why it failed, as far as the message tells.
    """

    message_id: str
    sent_at: int
    event: Any
    error: str

    def document(self) -> dict[str, object]:
        """One JSON document."""
        return {"message_id": self.message_id, "sent_at": self.sent_at, "error": self.error, "event": self.event}


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of the letters of a queue.

    Attributes:
        letters: those that were seen.
        sent: how many were sent again and taken off the queue.
        kept: ids of messages that hold no event; they stay.
    """

    letters: tuple[Letter, ...]
    sent: int
    kept: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """One JSON document."""
        return {"letters": [letter.document() for letter in self.letters], "sent": self.sent, "kept": list(self.kept)}


def event_of(body: str) -> Any:
    """The event in a message; ``None`` if there is none.

    Lambda and EventBridge put the event itself into the queue; the local cloud puts it into what a failure destination gets (AWS Lambda,
    Invoking a function asynchronously; Amazon EventBridge, Using dead-letter queues).
    """
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if isinstance(document, dict) and {"requestContext", "requestPayload"} <= set(document):
        document = document["requestPayload"]
    return document if isinstance(document, dict) else None


def waiting(asked: Asked) -> list[Waiting]:
    """The platform's functions that have a dead-letter queue, and how many messages wait in it.

    Raises:
        CommandError: AWS refuses or does not answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    functions, sqs = asked.client("lambda"), asked.client("sqs")
    found: list[Waiting] = []
    try:
        for page in functions.get_paginator("list_functions").paginate():
            for function in page["Functions"]:
                arn = function.get("DeadLetterConfig", {}).get("TargetArn", "")
                if not function.get("Handler", "").startswith(_HANDLERS) or ":sqs:" not in arn:
                    continue
                queue = arn.rsplit(":", 1)[1]
                url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
                counted = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
                messages = int(counted["ApproximateNumberOfMessages"])
                found.append(Waiting(function["FunctionName"], function["Handler"].removeprefix(_HANDLERS), queue, url, messages))
    except (ClientError, BotoCoreError) as error:
        raise CommandError(f"{asked.where} refuses or does not answer: {error}") from error
    return found


def _of(asked: Asked, name: str) -> Waiting:
    known = waiting(asked)
    for each in known:
        if name in {each.queue, each.function, each.handler.removesuffix(".handler")}:
            return each
    allowed = ", ".join(each.handler.removesuffix(".handler") for each in known) or "none, the platform is not deployed there"
    raise CommandError(f"{asked.where} has no function with a dead-letter queue named {name!r}; there are: {allowed}")


def letters(asked: Asked, name: str) -> list[Letter]:
    """Look at the messages of a queue; they stay.

    Args:
        asked: where.
        name: the queue's name, its function's, or the handler's, such as ``admission``.
    """
    return list(redrive(asked, name, apply=False).letters)


def redrive(asked: Asked, name: str, *, apply: bool) -> Redriven:
    """Send the events of a queue to its function again, each once.

    A message is taken off the queue only after Lambda took the event; cut in between, it is sent a second time, which the functions allow.

    Args:
        asked: where.
        name: the queue's name, its function's, or the handler's, such as ``admission``.
        apply: send, instead of only looking.

    Raises:
        CommandError: there is no such queue, or AWS refuses.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    source = _of(asked, name)
    sqs, functions = asked.client("sqs"), asked.client("lambda")
    seen: dict[str, Letter] = {}
    held: list[str] = []
    kept: list[str] = []
    sent = 0
    try:
        for message in _messages(sqs, source.url, _SEND_SECONDS if apply else _LOOK_SECONDS, seen):
            letter = _letter(message)
            seen[letter.message_id] = letter
            if not apply or letter.event is None:
                held.append(message["ReceiptHandle"])
                kept += [] if letter.event is not None else [letter.message_id]
                continue
            functions.invoke(FunctionName=source.function, InvocationType="Event", Payload=json.dumps(letter.event).encode())
            sqs.delete_message(QueueUrl=source.url, ReceiptHandle=message["ReceiptHandle"])
            sent += 1
        for handle in held:
            sqs.change_message_visibility(QueueUrl=source.url, ReceiptHandle=handle, VisibilityTimeout=0)
    except (ClientError, BotoCoreError) as error:
        raise CommandError(f"{asked.where} refuses or does not answer: {error}") from error
    return Redriven(tuple(seen.values()), sent, tuple(kept))


def _messages(sqs: Any, url: str, hidden_seconds: int, seen: Mapping[str, Letter]) -> Iterator[Mapping[str, Any]]:
    """Messages of the queue, each once: it is at its end when it gives none, or one that was seen."""
    while True:
        answer = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=_BATCH,
            VisibilityTimeout=hidden_seconds,
            WaitTimeSeconds=1,
            MessageAttributeNames=["All"],
            AttributeNames=["SentTimestamp"],
        )
        messages = answer.get("Messages", [])
        if not messages or any(message["MessageId"] in seen for message in messages):
            return
        yield from messages


def _letter(message: Mapping[str, Any]) -> Letter:
    given = {name: attribute.get("StringValue", "") for name, attribute in message.get("MessageAttributes", {}).items()}
    error = given.get("ErrorMessage") or ": ".join(given[name] for name in ("ERROR_CODE", "ERROR_MESSAGE") if name in given)
    if not error:
        try:
            payload = json.loads(message["Body"]).get("responsePayload") or {}
            error = str(payload.get("errorMessage") or payload.get("errorType") or "")
        except (ValueError, AttributeError):
            error = ""
    return Letter(message["MessageId"], int(message.get("Attributes", {}).get("SentTimestamp", 0)), event_of(message["Body"]), error)
