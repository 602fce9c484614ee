"""What is too much and what it means: the rules that alarms, runbook and `mme doctor` share.

A rule is data: signals of the metric catalogue, an expression over them in CloudWatch's metric math, a threshold, how often it must be
crossed, what missing data means, and in words what it means and what to do. The runbook page ``docs/runbook/<id>.md`` repeats those words.

Sources: the founding article on best practices for multi-model endpoints (utilization within 50 to 80 percent is right-sized; low CPU with
high memory is over-provisioned; near 100 percent is under-provisioned), Amazon SageMaker AI, CloudWatch Metrics for Multi-Model Endpoint
Deployments (hit ratio, unloads), and our own defaults where no source gives a number; each can be overridden where an alarm is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from mme_facts.limits import API_GATEWAY_TIMEOUT_SECONDS
from mme_facts.metrics import (
    ADMISSION_NAMESPACE,
    FLEET_NAMESPACE,
    FUNCTION_NAMESPACE,
    HEAT_NAMESPACE,
    INSTANCE_NAMESPACE,
    INVOCATION_LINE_NAMESPACE,
    INVOCATION_NAMESPACE,
    PLACEMENT_NAMESPACE,
    QUEUE_NAMESPACE,
    SWEEP_NAMESPACE,
    WARM_UP_NAMESPACE,
    Metric,
    metric,
)

__all__ = [
    "CPU_HIGH_PERCENT",
    "CPU_LOW_PERCENT",
    "LEAST_REQUESTS",
    "RULES",
    "USERS_HURT",
    "Breach",
    "Missing",
    "Page",
    "Rule",
    "Section",
    "Signal",
    "pages",
]

Breach = Literal["above", "below"]
Missing = Literal["notBreaching", "breaching", "ignore", "missing"]
"""CloudWatch's words (Amazon CloudWatch, Configuring how CloudWatch alarms treat missing data)."""
Section = Literal["users", "cache", "fleet", "tenants"]

CPU_LOW_PERCENT = 50
CPU_HIGH_PERCENT = 80
"""Between them an endpoint is right-sized, in percent of all its vCPUs."""
MEMORY_FULL_PERCENT = 80
"""With low CPU: memory is held by cold models that nothing pushes out."""
LEAST_REQUESTS = 20
"""A ratio of fewer requests in a period says nothing."""
_LEAST_UNLOADS = 10
_LEAST_LOADED_SAMPLES = 50
"""Sum of LoadedModelCount over 5 minutes below which a fall says nothing: 10 models, one sample a minute."""
LOAD_WAIT_SECONDS = 20
"""Nine seconds before API Gateway answers in the endpoint's place."""
_MICROSECONDS = 1_000_000.0
_EVERY_SWEEP = "The sweep publishes every run; without it there is no verdict, and the alarm shows insufficient data."
_UNTIL_EMPTY = "A queue that nobody touches stops publishing after hours, messages or not: the alarm stays on until it is empty."


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric under one statistic.

    Attributes:
        metric: of the catalogue.
        statistic: one that it has.

    Raises:
        MetricUseError: it has no such statistic.
    """

    metric: Metric
    statistic: str

    def __post_init__(self) -> None:
        self.metric.check_statistic(self.statistic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What every runbook page says.

    Attributes:
        id: name of the alarm and of its page.
        title: what is the matter, in a few words.
        meaning: what it means.
        action: what to do first.
    """

    id: str
    title: str
    meaning: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Page):
    """One rule.

    Attributes:
        section: where it stands on the dashboard.
        measured: what the expression yields, in words.
        signals: name in the expression -> metric and statistic.
        expression: CloudWatch metric math over the names; ``{vcpus}`` stands for the instance's vCPUs.
        breach: on which side of the threshold it fires.
        threshold: in the expression's unit, for one vCPU or GPU where ``scale`` says so.
        unit: unit of ``threshold`` divided by ``shown_per``, for people.
        shown_per: what values are divided by before they are shown.
        scale: what the threshold is multiplied by: utilizations of CPU and GPU are summed over cores and devices.
        needs: what the instance type must tell: ``vcpus`` or ``gpus``.
        period_minutes: length of a period.
        periods: how many are looked at.
        breaching_periods: how many of them must breach.
        missing: what a period without data counts as.
        missing_reason: why.
        hurts_users: whether it is part of the composite alarm.
        needs_cache: whether it says nothing when ``ModelCacheSetting`` is ``Disabled``.
        flag: whether the expression is 1 or 0, so that another threshold makes no sense.
        is_ratio: whether it is a number from 0 to 1.
    """

    section: Section
    measured: str
    signals: Mapping[str, Signal]
    expression: str
    breach: Breach
    threshold: float
    unit: str = ""
    shown_per: float = 1.0
    scale: Literal["vcpus", "gpus"] | None = None
    needs: Literal["vcpus", "gpus"] | None = None
    period_minutes: int = 5
    periods: int = 3
    breaching_periods: int = 3
    missing: Missing = "notBreaching"
    missing_reason: str = field(default="")
    hurts_users: bool = False
    needs_cache: bool = False
    flag: bool = False
    is_ratio: bool = False

    @property
    def greatest_threshold(self) -> float | None:
        """The greatest threshold that can be meant, in the unit that people see; ``None``: any."""
        if self.is_ratio:
            return 1.0
        return 100.0 if self.unit == " %" else None

    def limit(self, *, vcpus: int = 1, gpus: int = 1) -> float:
        """The threshold for an instance type, in the expression's unit."""
        return self.threshold * {"vcpus": vcpus, "gpus": gpus, None: 1}[self.scale]

    def math(self, *, vcpus: int = 1) -> str:
        """The expression for an instance type."""
        return self.expression.format(vcpus=vcpus)

    def condition(self) -> str:
        """When it fires, as a clause."""
        periods = f"{self.breaching_periods} of {self.periods} periods" if self.periods > 1 else "one period"
        length = f"{self.period_minutes // 60} h" if self.period_minutes % 60 == 0 else f"{self.period_minutes} min"
        if self.flag:
            return f"{self.measured}, in {periods} of {length}"
        return f"{self.measured} {self.breach} {self.threshold / self.shown_per:g}{self.unit}, in {periods} of {length}"


def _ratio(namespace: str, errors: str, requests: str = "Invocations") -> dict[str, Signal]:
    return {"errors": Signal(metric(namespace, errors), "Sum"), "requests": Signal(metric(namespace, requests), "Sum")}


def _one(namespace: str, name: str, statistic: str) -> dict[str, Signal]:
    return {"value": Signal(metric(namespace, name), statistic)}


_PERCENT_OF_REQUESTS = f"IF(requests >= {LEAST_REQUESTS}, 100 * errors / requests, 0)"
_NO_REQUESTS = "No data means no requests, and without requests nobody gets an error."
_ONLY_WITH_LOADS = "The metric has data only when a model is loaded; no load is no wait."
_EVERY_MINUTE = "Instances publish every minute; a gap tells nothing about them, so the alarm keeps its state."
_NO_VERDICT = "Without data there is nothing to judge; the alarm shows insufficient data instead of a guess."
_ONLY_WHEN_IT_HAPPENS = "The function publishes only when there is something to count; no data is no failure."

_RULES = (
    Rule(
        id="server-errors",
        title="SageMaker answers with 5XX",
        meaning=(
            "Callers get errors that no retry of theirs explains: instances are lost, overloaded or cannot load models. "
            "On a shared endpoint every tenant is concerned at once."
        ),
        action="Look at memory, CPU and the endpoint's log of the same minutes; add instances if they are near 100 percent.",
        section="users",
        measured="requests answered with 5XX",
        signals=_ratio(INVOCATION_NAMESPACE, "Invocation5XXErrors"),
        expression=_PERCENT_OF_REQUESTS,
        breach="above",
        threshold=1,
        unit=" %",
        period_minutes=1,
        periods=5,
        missing_reason=_NO_REQUESTS,
        hurts_users=True,
    ),
    Rule(
        id="model-errors",
        title="Models fail while they answer",
        meaning=(
            "The containers answer with something else than 2XX, close the connection or run out of time. One broken model shows here "
            "as well as workers that die for want of memory."
        ),
        action="Find the models in the invocation log (failure, tenant, model); roll a broken one back, give the workers memory otherwise.",
        section="users",
        measured="requests whose model failed",
        signals=_ratio(INVOCATION_NAMESPACE, "InvocationModelErrors"),
        expression=_PERCENT_OF_REQUESTS,
        breach="above",
        threshold=5,
        unit=" %",
        missing_reason=_NO_REQUESTS,
        hurts_users=True,
    ),
    Rule(
        id="client-errors",
        title="SageMaker answers with 4XX",
        meaning=(
            "Requests name artifacts that do not exist, are refused by a policy, or are throttled. Whether a model that is still "
            "being loaded counts here is not documented, so cold storms may show as well."
        ),
        action="Group the invocation log by failure and tenant: a wrong route is ours, wrong input is the tenant's.",
        section="users",
        measured="requests answered with 4XX",
        signals=_ratio(INVOCATION_NAMESPACE, "Invocation4XXErrors"),
        expression=_PERCENT_OF_REQUESTS,
        breach="above",
        threshold=10,
        unit=" %",
        missing_reason=_NO_REQUESTS,
    ),
    Rule(
        id="throttles",
        title="Requests end throttled",
        meaning=(
            "SageMaker throttles InvokeEndpoint and the retries of the invocation path do not get through: the account's quota of "
            "requests or the instances' own limit is reached."
        ),
        action="Ask for a higher quota of InvokeEndpoint, or add instances; slow the busiest tenant down until then.",
        section="users",
        measured="requests that ended throttled",
        signals={
            "errors": Signal(metric(INVOCATION_LINE_NAMESPACE, "throttled"), "Sum"),
            "requests": Signal(metric(INVOCATION_LINE_NAMESPACE, "throttled"), "SampleCount"),
        },
        expression=_PERCENT_OF_REQUESTS,
        breach="above",
        threshold=1,
        unit=" %",
        missing_reason="No data means no requests through the invocation path, and only it counts throttled ones.",
        hurts_users=True,
    ),
    Rule(
        id="long-load-wait",
        title="Requests wait long for their model",
        meaning=(
            "Cold requests wait for a download from S3 and a load into memory. Long downloads mean large artifacts or a slow way to "
            "the bucket; long loads mean heavy models or too few vCPUs for the loads that run at once."
        ),
        action=(
            "Compare ModelDownloadingTime with ModelLoadingTime: shrink the artifacts or shorten the way for the one, add vCPUs or "
            f"move the model to a dedicated component for the other. The API gives up at {API_GATEWAY_TIMEOUT_SECONDS} s."
        ),
        section="users",
        measured="longest wait for a model (ModelLoadingWaitTime, Maximum)",
        signals=_one(INVOCATION_NAMESPACE, "ModelLoadingWaitTime", "Maximum"),
        expression="value",
        breach="above",
        threshold=LOAD_WAIT_SECONDS * _MICROSECONDS,
        unit=" s",
        shown_per=_MICROSECONDS,
        missing_reason=_ONLY_WITH_LOADS,
        hurts_users=True,
    ),
    Rule(
        id="low-cache-hit",
        title="Too few requests find their model in memory",
        meaning=(
            "The models in use do not fit into the fleet's memory together: too little aggregate memory. A low ratio for some minutes "
            "after a scale-out or an update is a cold fleet that fills again."
        ),
        action="Take instances with more memory or more instances, or move the hottest models to dedicated components; aim near 1.",
        section="cache",
        measured="hit ratio (ModelCacheHit, Average)",
        signals={
            "hits": Signal(metric(INVOCATION_NAMESPACE, "ModelCacheHit"), "Average"),
            "requests": Signal(metric(INVOCATION_NAMESPACE, "ModelCacheHit"), "SampleCount"),
        },
        expression=f"IF(requests >= {LEAST_REQUESTS}, hits, 1)",
        breach="below",
        threshold=0.9,
        missing_reason="The metric has data only with requests; without them no hit is missing.",
        is_ratio=True,
        needs_cache=True,
    ),
    Rule(
        id="thrashing",
        title="Models push each other out of memory",
        meaning=(
            "Thrashing: models are unloaded to make room for others that are unloaded in turn, and vCPUs spend their time on loads "
            "instead of answers. LoadedModelCount climbs and collapses while it lasts."
        ),
        action="Add memory: larger instances or more of them. Several smaller instances share loads and unloads better than one large one.",
        section="cache",
        measured="unloads per 100 requests (ModelUnloadingTime, SampleCount)",
        signals={
            "unloads": Signal(metric(INVOCATION_NAMESPACE, "ModelUnloadingTime"), "SampleCount"),
            "requests": Signal(metric(INVOCATION_NAMESPACE, "Invocations"), "Sum"),
        },
        expression=f"IF(unloads >= {_LEAST_UNLOADS}, 100 * unloads / requests, 0)",
        breach="above",
        threshold=10,
        missing_reason="The metric has data only when a model is unloaded; without unloads nothing thrashes.",
        needs_cache=True,
    ),
    Rule(
        id="loaded-model-collapse",
        title="Half of the loaded models are gone",
        meaning=(
            "The fleet forgot what it had loaded: instances were replaced, a container ran out of memory and restarted, or an update "
            "put an empty fleet in place. The next requests are cold loads."
        ),
        action="Look for restarts and for updates in the endpoint's events; expect long waits until the fleet is warm again.",
        section="cache",
        measured="loaded models lost against the period before (LoadedModelCount, Sum)",
        signals={"loaded": Signal(metric(INSTANCE_NAMESPACE, "LoadedModelCount"), "Sum")},
        expression=f"IF(loaded - DIFF(loaded) >= {_LEAST_LOADED_SAMPLES}, -100 * DIFF(loaded) / (loaded - DIFF(loaded)), 0)",
        breach="above",
        threshold=50,
        unit=" %",
        periods=1,
        breaching_periods=1,
        missing="missing",
        missing_reason=_NO_VERDICT,
        needs_cache=True,
    ),
    Rule(
        id="cpu-high",
        title="The vCPUs are busy",
        meaning=(
            "Under-provisioned: vCPUs limit how many requests are answered and how many models are loaded at once, and waits grow "
            "before the CPU reaches 100 percent."
        ),
        action="Add instances or let auto scaling do it (lower its target); if only loads are the work, add memory instead.",
        section="fleet",
        measured="CPU in percent of all vCPUs (CPUUtilization, Average)",
        signals=_one(INSTANCE_NAMESPACE, "CPUUtilization", "Average"),
        expression="value",
        breach="above",
        threshold=CPU_HIGH_PERCENT,
        unit=" %",
        scale="vcpus",
        needs="vcpus",
        missing="ignore",
        missing_reason=_EVERY_MINUTE,
    ),
    Rule(
        id="cpu-low",
        title="The vCPUs idle all day",
        meaning=(
            "The endpoint has more vCPUs than its requests need, in every hour of a whole day. If memory is low as well, there are "
            "too many instances; if it is high, see over-provisioned."
        ),
        action="Lower min_instances, or take an instance type with fewer vCPUs for the same memory; keep two instances for two zones.",
        section="fleet",
        measured="CPU in percent of all vCPUs (CPUUtilization, Average)",
        signals=_one(INSTANCE_NAMESPACE, "CPUUtilization", "Average"),
        expression="value",
        breach="below",
        threshold=CPU_LOW_PERCENT,
        unit=" %",
        scale="vcpus",
        needs="vcpus",
        period_minutes=60,
        periods=24,
        breaching_periods=24,
        missing="missing",
        missing_reason=_NO_VERDICT,
    ),
    Rule(
        id="over-provisioned",
        title="Low CPU with high memory",
        meaning=(
            "Over-provisioned: low CPU with high memory. Memory is full of cold models that nothing pushes out, because the cache is "
            "larger than what is in use, and the vCPUs wait for requests."
        ),
        action="Use fewer or smaller instances while ModelCacheHit stays near 1; retire models that nobody calls.",
        section="fleet",
        measured=f"CPU below {CPU_LOW_PERCENT} % of all vCPUs and memory above {MEMORY_FULL_PERCENT} %",
        signals={
            "cpu": Signal(metric(INSTANCE_NAMESPACE, "CPUUtilization"), "Average"),
            "memory": Signal(metric(INSTANCE_NAMESPACE, "MemoryUtilization"), "Average"),
        },
        expression=f"IF(cpu < {CPU_LOW_PERCENT} * {{vcpus}}, IF(memory > {MEMORY_FULL_PERCENT}, 1, 0), 0)",
        breach="above",
        threshold=0,
        needs="vcpus",
        period_minutes=60,
        periods=6,
        breaching_periods=6,
        missing="missing",
        missing_reason=_NO_VERDICT,
        flag=True,
    ),
    Rule(
        id="memory-high",
        title="Memory is nearly full",
        meaning=(
            "Under-provisioned: a full cache is normal, but near 100 percent there is no slack to load a model before another one is "
            "unloaded, and containers die instead of answering 507."
        ),
        action="Take more memory per instance, fewer workers per model, or more instances.",
        section="fleet",
        measured="memory of the fullest instance (MemoryUtilization, Maximum)",
        signals=_one(INSTANCE_NAMESPACE, "MemoryUtilization", "Maximum"),
        expression="value",
        breach="above",
        threshold=90,
        unit=" %",
        missing="ignore",
        missing_reason=_EVERY_MINUTE,
    ),
    Rule(
        id="disk-high",
        title="The volume is nearly full",
        meaning=(
            "The disk is the tier between memory and S3. When it is full, artifacts are deleted to make room, and a model that left "
            "memory has to be downloaded again: longer cold loads."
        ),
        action="Enlarge the volume, or take a type with larger NVMe disks; all models in use should fit.",
        section="fleet",
        measured="disk of the fullest instance (DiskUtilization, Maximum)",
        signals=_one(INSTANCE_NAMESPACE, "DiskUtilization", "Maximum"),
        expression="value",
        breach="above",
        threshold=80,
        unit=" %",
        missing="ignore",
        missing_reason=_EVERY_MINUTE,
    ),
    Rule(
        id="gpu-memory-high",
        title="GPU memory is nearly full",
        meaning=(
            "GPU memory holds models and the working memory of running requests. Near 100 percent a request fails for want of memory "
            "and its model is unloaded and loaded again."
        ),
        action="Take GPUs with more memory or more instances, limit Triton's share for models, or compile transformers with TensorRT.",
        section="fleet",
        measured="memory of the fullest GPU (GPUMemoryUtilization, Maximum)",
        signals=_one(INSTANCE_NAMESPACE, "GPUMemoryUtilization", "Maximum"),
        expression="value",
        breach="above",
        threshold=90,
        unit=" %",
        scale="gpus",
        needs="gpus",
        missing="ignore",
        missing_reason=_EVERY_MINUTE,
    ),
    Rule(
        id="stuck-updating",
        title="The endpoint does not come back into service",
        meaning=(
            "The endpoint is creating, updating or rolling back for longer than instances need to start. The old fleet still serves, "
            "but auto scaling and further updates wait."
        ),
        action="Read the failure reason of DescribeEndpoint and the containers' log; fix image, role or capacity, and update again.",
        section="fleet",
        measured="time outside InService",
        signals=_one(FLEET_NAMESPACE, "updating_seconds", "Maximum"),
        expression="value",
        breach="above",
        threshold=2700,
        unit=" min",
        shown_per=60,
        periods=1,
        breaching_periods=1,
        missing="missing",
        missing_reason="The fleet watch publishes every minute; without it there is no verdict, and the alarm shows insufficient data.",
    ),
    Rule(
        id="rejected-artifacts",
        title="Many uploads are rejected",
        meaning=(
            "Admission refuses artifacts: a tenant's pipeline writes archives that cannot be served, or a check of ours is too strict "
            "since the last deployment. Single rejections are normal."
        ),
        action="Group the admission log by rule and tenant; tell the one tenant, or roll the deployment back if all are concerned.",
        section="tenants",
        measured="rejected artifacts",
        signals=_one(ADMISSION_NAMESPACE, "rejected", "Sum"),
        expression="value",
        breach="above",
        threshold=10,
        period_minutes=15,
        periods=1,
        breaching_periods=1,
        missing_reason=_ONLY_WHEN_IT_HAPPENS,
    ),
    Rule(
        id="admission-dead-letters",
        title="Uploads wait in the dead-letter queue",
        meaning="Admission failed for good on these events: their versions stay where they are until somebody sends the events again.",
        action="Read the messages and the function's log, remove the cause, then send the events to the function again.",
        section="tenants",
        measured="messages in the queue",
        signals=_one(QUEUE_NAMESPACE, "ApproximateNumberOfMessagesVisible", "Maximum"),
        expression="value",
        breach="above",
        threshold=0,
        periods=1,
        breaching_periods=1,
        missing="ignore",
        missing_reason=_UNTIL_EMPTY,
    ),
    Rule(
        id="sweep-failed",
        title="The sweep cannot do its work",
        meaning=(
            "The sweep meets errors run after run: stuck versions are not brought on, abandoned uploads not expired, retired artifacts "
            "not deleted. Nothing is lost, and what works goes on."
        ),
        action="Read failures in the sweep's log line: each names the version or object and the error; remove the cause.",
        section="tenants",
        measured="versions and objects that the sweep could not deal with",
        signals=_one(SWEEP_NAMESPACE, "failed", "Sum"),
        expression="value",
        breach="above",
        threshold=0,
        period_minutes=15,
        missing="missing",
        missing_reason=_EVERY_SWEEP,
    ),
    Rule(
        id="stuck-versions",
        title="A version does not get on",
        meaning=(
            "A version under way has not changed for hours although admission was called again: its tenant waits for a model that "
            "neither becomes ready nor is rejected."
        ),
        action="Find it in the admission log by tenant, model and version, remove the cause; the sweep brings it on by itself.",
        section="tenants",
        measured="time since the oldest version under way last changed",
        signals=_one(SWEEP_NAMESPACE, "oldest_stuck_seconds", "Maximum"),
        expression="value",
        breach="above",
        threshold=7200,
        unit=" min",
        shown_per=60,
        period_minutes=15,
        periods=1,
        breaching_periods=1,
        missing="missing",
        missing_reason=_EVERY_SWEEP,
    ),
    Rule(
        id="unexplained-artifacts",
        title="Artifacts have no record",
        meaning=(
            "The models prefix holds artifacts without the record that should be there: records were lost, the table was restored from "
            "an older state, or somebody wrote objects by hand."
        ),
        action="Run 'mme registry reconcile' and decide from its report; it changes nothing unless it is told to.",
        section="tenants",
        measured="artifacts without a record in one run of the sweep",
        signals=_one(SWEEP_NAMESPACE, "unexplained", "Maximum"),
        expression="value",
        breach="above",
        threshold=0,
        period_minutes=60,
        periods=1,
        breaching_periods=1,
        missing="missing",
        missing_reason=_EVERY_SWEEP,
    ),
    Rule(
        id="schedule-dead-letters",
        title="A scheduled function failed for good",
        meaning="A function that runs on a schedule ended with an error or was cut off, and so did the attempts after it.",
        action="Read the message's error and the end of the function's log; after the cause is gone, empty the queue.",
        section="tenants",
        measured="messages in the queue",
        signals=_one(QUEUE_NAMESPACE, "ApproximateNumberOfMessagesVisible", "Maximum"),
        expression="value",
        breach="above",
        threshold=0,
        periods=1,
        breaching_periods=1,
        missing="ignore",
        missing_reason=_UNTIL_EMPTY,
    ),
    Rule(
        id="function-throttles",
        title="A function is throttled",
        meaning=(
            "Lambda refuses to start the function: its reserved concurrency or the account's is used up. Callers of the API get 429 "
            "or 500; events are tried again later."
        ),
        action="Raise the function's reserved concurrency or the account's quota; slow the busiest tenant down until then.",
        section="tenants",
        measured="throttled invocations of the function",
        signals=_one(FUNCTION_NAMESPACE, "Throttles", "Sum"),
        expression="value",
        breach="above",
        threshold=0,
        missing_reason="Lambda publishes only when the function is called; a function that nobody calls is not throttled.",
    ),
    Rule(
        id="heat-late",
        title="Heat is not collected any more",
        meaning=(
            "The newest window whose requests are counted ended too long ago, or the collector does not run. Placement, warm-up, "
            "planner and the split of costs work with old heat. Requests are served and logged; nothing is lost for a day."
        ),
        action="Read the collector's log: a query that fails, the account's limit of queries, a missing permission or a time-out.",
        section="tenants",
        measured="time since the end of the newest collected window",
        signals=_one(HEAT_NAMESPACE, "lag_seconds", "Maximum"),
        expression="value",
        breach="above",
        threshold=1800,
        unit=" min",
        shown_per=60,
        missing="missing",
        missing_reason="The collector publishes in every run: without data it does not run, and the alarm shows that it cannot tell.",
    ),
    Rule(
        id="warm-up-failed",
        title="Warm-up failed or ran out of time",
        meaning="After a change of the fleet the caches were not filled again: tenants' own requests load the models and wait for it.",
        action="Read the warm-up's log; start it again with 'mme warm-up --now' once errors and throttles are gone.",
        section="tenants",
        measured="failed or overrun warm-ups",
        signals={
            "failed": Signal(metric(WARM_UP_NAMESPACE, "failed"), "Sum"),
            "overrun": Signal(metric(WARM_UP_NAMESPACE, "overrun"), "Sum"),
        },
        expression="failed + overrun",
        breach="above",
        threshold=0,
        periods=1,
        breaching_periods=1,
        missing_reason=_ONLY_WHEN_IT_HAPPENS,
    ),
    Rule(
        id="placement-failed",
        title="A model could not be moved",
        meaning=(
            "A promotion to a dedicated component, or the way back, failed or was abandoned. The model is served where it was before; "
            "what was meant to relieve the shared endpoint has not happened."
        ),
        action="See 'mme placement --explain TENANT MODEL' for the reason; insufficient capacity needs another type or a quota.",
        section="tenants",
        measured="failed moves",
        signals=_one(PLACEMENT_NAMESPACE, "failed", "Sum"),
        expression="value",
        breach="above",
        threshold=0,
        periods=1,
        breaching_periods=1,
        missing_reason=_ONLY_WHEN_IT_HAPPENS,
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _RULES})
"""Id -> rule, in the order of the dashboard."""

USERS_HURT = Page(
    id="users-are-hurt",
    title="Users are hurt",
    meaning=(
        "Callers get errors or wait too long right now: at least one of the alarms that users feel is on. Everything else on the "
        "dashboard explains why; nothing else has to be answered at night."
    ),
    action="Open the dashboard, see which alarm of the first row is on, and follow its page.",
)
"""The composite alarm over the rules that hurt users."""


def pages() -> tuple[Page, ...]:
    """Everything that has a runbook page: the composite alarm first, then the rules."""
    return (USERS_HURT, *RULES.values())
