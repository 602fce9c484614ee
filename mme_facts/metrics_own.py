"""Rows of the metric catalogue that our functions publish, as EMF lines of their logs.

Names are the lines' fields. Dimensions are bounded: endpoint, function, or a tenant of a list that an operator names; models are fields
only, so that no metric exists for each model. Functions take names and units from here.
"""

from __future__ import annotations

from mme_facts.metrics_entry import BASIC_STATISTICS, Metric

__all__ = [
    "ADMISSION_METRICS",
    "ADMISSION_NAMESPACE",
    "FLEET_METRICS",
    "FLEET_NAMESPACE",
    "HEAT_METRICS",
    "HEAT_NAMESPACE",
    "INVOCATION_LINE_METRICS",
    "INVOCATION_LINE_NAMESPACE",
    "INVOCATION_PATH_METRICS",
    "OWN_METRICS",
    "PLACEMENT_METRICS",
    "PLACEMENT_NAMESPACE",
    "PREFETCH_METRICS",
    "SWEEP_METRICS",
    "SWEEP_NAMESPACE",
    "WARM_UP_METRICS",
    "WARM_UP_NAMESPACE",
]

INVOCATION_LINE_NAMESPACE = "MME/Invocations"
ADMISSION_NAMESPACE = "MME/Admission"
FLEET_NAMESPACE = "MME/Fleet"
SWEEP_NAMESPACE = "MME/Sweep"
HEAT_NAMESPACE = "MME/Heat"
WARM_UP_NAMESPACE = "MME/WarmUp"
PLACEMENT_NAMESPACE = "MME/Placement"

_ENDPOINT = ("endpoint",)
_FUNCTION = ("function",)
_COUNT = ("Sum", "Average", "Maximum", "SampleCount")
_FLAG = ("Average", "Sum", "SampleCount")
_LEVEL = ("Maximum", "Average", "Minimum")


def _request(name: str, unit: str, statistics: tuple[str, ...], what: str, *, percentiles: bool = False) -> Metric:
    dimensions = (_ENDPOINT, ("endpoint", "tenant"))
    return Metric(name, INVOCATION_LINE_NAMESPACE, unit, statistics, percentiles, dimensions, "invocation path", what)


def _of_endpoint(namespace: str, emitter: str, name: str, unit: str, statistics: tuple[str, ...], what: str) -> Metric:
    return Metric(name, namespace, unit, statistics, dimensions=(_ENDPOINT,), emitter=emitter, source=what)


def _of_function(namespace: str, emitter: str, name: str, unit: str, statistics: tuple[str, ...], what: str) -> Metric:
    return Metric(name, namespace, unit, statistics, dimensions=(_FUNCTION,), emitter=emitter, source=what)


def _warm_up(name: str, unit: str, statistics: tuple[str, ...], what: str) -> Metric:
    return _of_endpoint(WARM_UP_NAMESPACE, "warm-up", name, unit, statistics, what)


def _placement(name: str, unit: str, statistics: tuple[str, ...], what: str) -> Metric:
    return _of_endpoint(PLACEMENT_NAMESPACE, "placement reconciler", name, unit, statistics, what)


def _heat(name: str, unit: str, statistics: tuple[str, ...], what: str) -> Metric:
    return _of_function(HEAT_NAMESPACE, "heat collector", name, unit, statistics, what)


INVOCATION_LINE_METRICS = (
    _request("latency_ms", "Milliseconds", BASIC_STATISTICS, "from the request's arrival to its answer", percentiles=True),
    _request("attempts", "Count", ("Average", "Sum", "Maximum", "SampleCount"), "requests sent to SageMaker for one of the caller's"),
    _request("cold", "Count", _FLAG, "1 when SageMaker said that the model was not ready; the average is a ratio"),
    _request("failed", "Count", _FLAG, "1 when the answer's status is 500 or more; the average is a ratio"),
    _request("throttled", "Count", _FLAG, "1 when the request ended throttled after its retries; the average is a ratio"),
)
"""What every invocation's line carries."""
INVOCATION_PATH_METRICS = (
    _request("model_latency_ms", "Milliseconds", BASIC_STATISTICS, "the attempt that was answered, at SageMaker", percentiles=True),
    _request("retries", "Count", ("Sum", "Average", "Maximum", "SampleCount"), "attempts after the first"),
    _request("bytes_in", "Bytes", ("Sum", "Average", "Maximum", "SampleCount"), "the request's body"),
    _request("bytes_out", "Bytes", ("Sum", "Average", "Maximum", "SampleCount"), "the answer's body"),
    _request("rejected_by_limit", "Count", _FLAG, "1 when the tenant's own limit refused the request"),
    _request("circuit_open", "Count", _FLAG, "1 when the model's circuit breaker refused the request"),
)
"""What the full invocation path adds to the line."""
ADMISSION_METRICS = (
    _of_function(ADMISSION_NAMESPACE, "admission", "admitted", "Count", _COUNT, "1 when a version became ready or active"),
    _of_function(ADMISSION_NAMESPACE, "admission", "rejected", "Count", _COUNT, "1 when an artifact was rejected"),
)
"""What the line of an admitted or rejected upload carries; ``function`` is the admission function's name."""
SWEEP_METRICS = (
    _of_function(SWEEP_NAMESPACE, "sweep", "resumed", "Count", _COUNT, "stuck versions whose admission was called again"),
    _of_function(SWEEP_NAMESPACE, "sweep", "expired", "Count", _COUNT, "versions whose upload was given up"),
    _of_function(SWEEP_NAMESPACE, "sweep", "rejected", "Count", _COUNT, "versions under way whose stored artifact is gone"),
    _of_function(SWEEP_NAMESPACE, "sweep", "purged", "Count", _COUNT, "retired versions whose artifact was deleted"),
    _of_function(SWEEP_NAMESPACE, "sweep", "deleted_uploads", "Count", _COUNT, "uploads deleted because no version needs them"),
    _of_function(SWEEP_NAMESPACE, "sweep", "deleted_artifacts", "Count", _COUNT, "artifacts deleted because no record points to them"),
    _of_function(
        SWEEP_NAMESPACE, "sweep", "unexplained", "Count", _LEVEL, "artifacts without the record that should be there, in one tick"
    ),
    _of_function(SWEEP_NAMESPACE, "sweep", "failed", "Count", _COUNT, "versions and objects that a tick could not deal with"),
    _of_function(SWEEP_NAMESPACE, "sweep", "oldest_stuck_seconds", "Seconds", _LEVEL, "since the oldest version under way last changed"),
)
"""What the line of each tick of the sweep carries; uploads that are awaited do not count as stuck."""
FLEET_METRICS = (
    _of_endpoint(FLEET_NAMESPACE, "fleet watch", "updating_seconds", "Seconds", _LEVEL, "time in a status other than InService; 0 in it"),
    _of_endpoint(FLEET_NAMESPACE, "fleet watch", "instances", "Count", _LEVEL, "instances that DescribeEndpoint counts"),
)
HEAT_METRICS = (
    _heat("windows", "Count", _COUNT, "closed windows that were written"),
    _heat("models", "Count", _LEVEL, "models with requests in the newest window of the pass"),
    _heat("late_lines", "Count", _COUNT, "lines that came after their window was written, found when it was counted again"),
    _heat("truncated", "Count", _COUNT, "written windows with more models than the query returns"),
    _heat("unassigned", "Count", _COUNT, "requests of written windows to endpoints of no pool"),
    _heat("missing", "Count", _LEVEL, "closed windows that are still to be written after the pass"),
    _heat("lag_seconds", "Seconds", _LEVEL, "since the end of the newest window that is written"),
    _heat("failed", "Count", _COUNT, "queries that failed or did not end in time"),
)
WARM_UP_METRICS = (
    _warm_up("models_warmed", "Count", _COUNT, "models called by a warm-up"),
    _warm_up("calls", "Count", _COUNT, "calls of a warm-up"),
    _warm_up("bytes_warmed", "Bytes", _COUNT, "artifact bytes of the models called"),
    _warm_up("seconds", "Seconds", _LEVEL, "how long the warm-up took"),
    _warm_up("cold_requests_avoided", "Count", _COUNT, "estimate of tenants' requests that found their model loaded because of it"),
    _warm_up("failed", "Count", _COUNT, "1 when a warm-up was given up: models failed, the endpoint took no calls, or nobody ended it"),
    _warm_up("overrun", "Count", _COUNT, "1 when a warm-up was ended by its time limit"),
)
"""What the line of a warm-up carries that has ended."""
PREFETCH_METRICS = (
    _warm_up("prefetched", "Count", _COUNT, "models called by prefetch, in one minute"),
    _warm_up("prefetch_loads", "Count", _COUNT, "of the models due, those that were probably not loaded"),
    _warm_up("prefetch_used", "Count", _COUNT, "models loaded by prefetch whose use has come, told when heat tells of it"),
    _warm_up("prefetch_wasted", "Count", _COUNT, "models loaded by prefetch that nobody used until ten minutes after their last call"),
)
"""What the line of each minute of prefetch carries."""
PLACEMENT_METRICS = (
    _placement("promoted", "Count", _COUNT, "models that moved to a component of their own"),
    _placement("demoted", "Count", _COUNT, "models that moved back to the shared endpoint"),
    _placement("moving", "Count", _LEVEL, "models under way"),
    _placement("dedicated", "Count", _LEVEL, "models with a component of their own"),
    _placement("failed", "Count", _COUNT, "1 when a move failed or was abandoned"),
    _placement("tick_seconds", "Seconds", _LEVEL, "how long one pass of the reconciler took"),
)

OWN_METRICS = (
    *INVOCATION_LINE_METRICS,
    *INVOCATION_PATH_METRICS,
    *ADMISSION_METRICS,
    *SWEEP_METRICS,
    *FLEET_METRICS,
    *HEAT_METRICS,
    *WARM_UP_METRICS,
    *PREFETCH_METRICS,
    *PLACEMENT_METRICS,
)
"""Every row; a name is unique in its namespace."""
