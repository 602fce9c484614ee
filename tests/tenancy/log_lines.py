"""Log lines as the invocation path writes them, and the local cloud's own query language over them."""

from mme_local.logs.evaluation import evaluate
from mme_local.logs.language import parse_query
from mme_local.logs.values import Event
from mme_tenancy.log_queries import QueriesBusyError, QueryAnswer, QueryFailedError
from mme_tenancy.telemetry import invocation_line


class Log:
    """A log group whose queries the local cloud's Logs Insights evaluates.

    Attributes:
        failing: beginnings of time ranges whose queries fail.
        busy: whether the account's limit is reached.
        texts: every query so far.
    """

    def __init__(self):
        self.events, self.texts, self.failing, self.busy, self.polls = [], [], set(), False, 0
        self._running = {}

    def write(self, at, *, endpoint="one", tenant="acme", model="iris", version="v1-0123456789ab", count=1, **fields):
        line = {"tenant": tenant, "model": model, "version": version, "endpoint": endpoint, "status": 200, "cold": 0, "failed": 0}
        line |= {"bytes_in": 10, "bytes_out": 2, "latency_ms": 2.5, "model_latency_ms": 1.5}
        text = invocation_line(line | fields, epoch_seconds=at)
        self.events += [Event(lambda: "pointer", at * 1000, at * 1000, text, "/log", "stream", "1")] * count

    def start(self, query):
        if self.busy:
            raise QueriesBusyError("LimitExceededException")
        self.texts.append(query.text)
        self._running[str(len(self.texts))] = query
        return str(len(self.texts))

    def poll(self, query_id):
        query = self._running[query_id]
        if query.start in self.failing:
            raise QueryFailedError("it ended as Failed")
        inside = [event for event in self.events if query.start * 1000 <= event.timestamp <= query.end * 1000 + 999]
        return QueryAnswer(tuple(dict(row) for row in evaluate(parse_query(query.text), inside).rows))

    def stop(self, query_id):
        del self._running[query_id]
