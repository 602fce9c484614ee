"""Alarms, notifications and dashboard of a multi-model endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from mme_constructs.errors import AlarmError
from mme_constructs.monitoring_alarms import COMPARISONS, AlarmSettings, check_window, description, rule_metric, rule_of, tuned
from mme_constructs.monitoring_dashboard import MonitoringDashboard
from mme_constructs.monitoring_metrics import MetricSource, check_metric
from mme_constructs.monitoring_topic import alarm_topic, allow_alarms
from mme_constructs.stack_of import is_token, stack_of
from mme_facts import instances
from mme_facts.metrics import FUNCTION_NAMESPACE, metric
from mme_facts.thresholds import RULES, USERS_HURT, Breach, Missing, Page, Rule

if TYPE_CHECKING:
    from mme_constructs.endpoint_interface import IMultiModelEndpoint
    from mme_constructs.heat_collector import HeatCollector
    from mme_constructs.model_admission import ModelAdmission
    from mme_constructs.sweeper import Sweeper
    from mme_constructs.warm_up import WarmUp

__all__ = ["AlarmSettings", "MmeMonitoring"]

_MISSING: Mapping[Missing, cloudwatch.TreatMissingData] = {
    "notBreaching": cloudwatch.TreatMissingData.NOT_BREACHING,
    "breaching": cloudwatch.TreatMissingData.BREACHING,
    "ignore": cloudwatch.TreatMissingData.IGNORE,
    "missing": cloudwatch.TreatMissingData.MISSING,
}
_OPERATORS: Mapping[Breach, str] = {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}
_ALWAYS = tuple(
    rule.id for rule in RULES.values() if rule.section in ("users", "cache", "fleet") and rule.id not in ("throttles", "stuck-updating")
)
_UNMISTAKABLE = "{alarm}"


class MmeMonitoring(Construct):
    """What tells that an endpoint is in trouble, and why: alarms, one composite alarm on which to wake somebody, a dashboard.

    The alarms are the rules of `mme_facts.thresholds`; each description says when it fires, what to do first, and names its runbook page.
    Every alarm notifies ``ticket_topic``; the composite "users are hurt" notifies ``topic``. Works on endpoints of this app and on imported
    ones. CPU and GPU alarms need the instance type, because those metrics are summed over cores and devices: without it they are left out,
    and the synthesis says so. With ``ModelCacheSetting`` ``Disabled`` the cache's alarms are left out.

    Args:
        scope: the parent.
        id: the id below the parent.
        endpoint: the endpoint.
        instance_type: its instance type. Default: what the endpoint knows.
        variant_name: the production variant to look at. Default: the endpoint's.
        overrides: alarm id -> what is different, or ``None``: that alarm is not made. Ids: `mme_facts.thresholds.RULES`.
        invocation_path: whether callers come through the platform's function or client, which count throttled requests. Adds the alarm
            ``throttles``. Default: no.
        topic: who is woken. Default: a topic of its own, encrypted and TLS only; subscribe people to it.
        ticket_topic: who is told about everything else. Default: ``topic``.
        encryption_key: KMS key of the topic that is made; its policy must be changeable. Default: a key of its own, billed monthly.
        runbook: address of a runbook page, ``{alarm}`` standing for the alarm's id. Default: its path in this project's repository.
        dashboard: whether a dashboard is made. Default: yes.

    Raises:
        AlarmError: an unknown alarm id, or settings that CloudWatch refuses.
        MetricError: a metric is used as it is not published.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        endpoint: IMultiModelEndpoint,
        instance_type: str | None = None,
        variant_name: str | None = None,
        overrides: Mapping[str, AlarmSettings | None] | None = None,
        invocation_path: bool = False,
        topic: sns.ITopic | None = None,
        ticket_topic: sns.ITopic | None = None,
        encryption_key: kms.IKey | None = None,
        runbook: str = "docs/runbook/{alarm}.md",
        dashboard: bool = True,
    ) -> None:
        self._overrides = {} if overrides is None else dict(overrides)
        for rule_id in self._overrides:
            rule_of(rule_id)
        if _UNMISTAKABLE not in runbook:
            raise AlarmError(
                "The runbook's address is the same for every alarm", value=runbook, allowed="a text with {alarm}", fix="Add it"
            )
        self._runbook = runbook
        self._instance = _instance(endpoint.instance_type if instance_type is None else instance_type)
        super().__init__(scope, id)
        variant = endpoint.variant_name if variant_name is None else variant_name
        # As text where it is known, so that an alarm here may roll an update of the endpoint back without a circle between the two.
        name = getattr(endpoint, "metric_endpoint_name", endpoint.endpoint_name)
        self._source = MetricSource({"EndpointName": name, "VariantName": variant, "endpoint": name})
        self.topic: sns.ITopic = alarm_topic(self, encryption_key) if topic is None else topic
        """Who is woken."""
        self.ticket_topic: sns.ITopic = self.topic if ticket_topic is None else ticket_topic
        """Who is told about everything else."""
        for told in {self.topic.node.path: self.topic, self.ticket_topic.node.path: self.ticket_topic}.values():
            allow_alarms(told, stack_of(self).account)
        self._tell = [self.ticket_topic.topic_arn]
        self._alarms: dict[str, cloudwatch.CfnAlarm | cloudwatch.Alarm] = {}
        self._arns: dict[str, str] = {}
        self._seen = _Alarms(self._alarms, self._import)
        for rule_id in (*_ALWAYS, *(["throttles"] if invocation_path else [])):
            if endpoint.cache_enabled or not RULES[rule_id].needs_cache:
                self._add_default(RULES[rule_id])
        self.users_hurt = self._build_composite()
        """The composite alarm over everything that users feel."""
        self._dashboard = self._build_dashboard() if dashboard else None

    @property
    def alarms(self) -> Mapping[str, cloudwatch.IAlarm]:
        """Alarm id -> alarm; an alarm of one function among several has the function's path behind its id."""
        return self._seen

    @property
    def dashboard(self) -> MonitoringDashboard | None:
        """The dashboard, if there is one; it takes widgets of yours."""
        return self._dashboard

    def add_stuck_updating(self, settings: AlarmSettings | None = None) -> None:
        """An alarm on an endpoint that stays outside InService. A `FleetWatch` must publish the endpoint's state.

        Args:
            settings: what is different. Default: the construct's ``overrides``.
        """
        self._add(RULES["stuck-updating"], self._source, settings)

    def add_warm_up(self, settings: AlarmSettings | None = None, *, prefetch: bool = False) -> None:
        """An alarm on warm-ups of this endpoint that fail or run out of time, and their row on the dashboard.

        Args:
            settings: what is different. Default: the construct's ``overrides``.
            prefetch: whether what prefetch does is shown, too. Default: no; see `WarmUpSettings.prefetch`.
        """
        known = set(self._alarms)
        self._add(RULES["warm-up-failed"], self._source, settings)
        if self._dashboard is not None:
            self._dashboard.add_warm_up([self._arn(name) for name in self._alarms if name not in known], prefetch=prefetch)

    def add_warm_up_function(self, warm_up: WarmUp) -> None:
        """Alarms on errors of the function that warms endpoints, and on its lost events; once, however many endpoints it warms."""
        self.add_function_errors("warm-up", warm_up.function)
        self.add_schedule_dead_letters(warm_up.dead_letters)

    def add_placement(self, settings: AlarmSettings | None = None) -> None:
        """An alarm on models of this endpoint that could not be moved to or from a dedicated component.

        Args:
            settings: what is different. Default: the construct's ``overrides``.
        """
        self._add(RULES["placement-failed"], self._source, settings)

    def add_rejected_artifacts(self, function: lambda_.IFunction, settings: AlarmSettings | None = None) -> None:
        """An alarm on many rejected uploads.

        Args:
            function: the admission function.
            settings: what is different. Default: the construct's ``overrides``.
        """
        self._add_of_function("rejected-artifacts", "function", function, settings)

    def add_admission_dead_letters(self, queue: sqs.IQueue, settings: AlarmSettings | None = None) -> None:
        """An alarm on events of uploads that failed for good.

        Args:
            queue: the dead-letter queue.
            settings: what is different. Default: the construct's ``overrides``.
        """
        self._add(RULES["admission-dead-letters"], self._source.including({"QueueName": queue.queue_name}), settings)

    def add_function_throttles(self, function: lambda_.IFunction, settings: AlarmSettings | None = None) -> None:
        """An alarm on a function that Lambda throttles; once for each function.

        Args:
            function: the function.
            settings: what is different. Default: the construct's ``overrides``.
        """
        self._add_of_function("function-throttles", "FunctionName", function, settings)

    def add_function_errors(self, name: str, function: lambda_.IFunction, *, threshold: float = 0) -> None:
        """An alarm on a function that ends with an error instead of an answer; it is not one of the endpoint's.

        Args:
            name: the function's name in the alarm's id.
            function: the function.
            threshold: errors in five minutes above which it fires. Default 0.
        """
        id = f"function-errors-{name}"  # noqa: A001 - CDK's name for it
        self._check_free(id)
        action = "Read the end of its log: an exception, a missing permission or a time-out."
        title = f"The {name} function ends with errors"
        errors = self._source.including({"FunctionName": function.function_name}).metric(metric(FUNCTION_NAMESPACE, "Errors"), "Sum")
        self._build(
            id,
            id,
            description(
                Page(id=id, title=title, meaning=title, action=action),
                _when("above", threshold, 1, 1, errors.period_seconds // 60),
                self._page("function-throttles"),
            ),
            errors.alone(),
            threshold=threshold,
            breach="above",
            periods=1,
            breaching=1,
            missing="notBreaching",
        )

    def add_admission(self, admission: ModelAdmission) -> None:
        """Alarms on rejected uploads, dead letters and throttling of an admission, and their row on the dashboard."""
        known = set(self._alarms)
        self.add_rejected_artifacts(admission.function)
        self.add_admission_dead_letters(admission.dead_letters)
        self.add_function_throttles(admission.function)
        if self._dashboard is not None:
            source = self._source.including({"function": admission.function.function_name, "QueueName": admission.dead_letters.queue_name})
            self._dashboard.add_admission(source, [self._arn(name) for name in self._alarms if name not in known])

    def add_sweeper(self, sweeper: Sweeper) -> None:
        """Alarms on what the sweep reports, and on schedules of it that failed for good."""
        self.add_sweep(sweeper.function)
        self.add_schedule_dead_letters(sweeper.dead_letters)

    def add_sweep(self, function: lambda_.IFunction, settings: AlarmSettings | None = None) -> None:
        """Alarms on a sweep that fails, on versions that stay stuck, and on artifacts that the registry does not know.

        Args:
            function: the sweep's function.
            settings: what is different. Default: the construct's ``overrides``.
        """
        for rule_id in ("sweep-failed", "stuck-versions", "unexplained-artifacts"):
            self._add_of_function(rule_id, "function", function, settings)

    def add_schedule_dead_letters(self, queue: sqs.IQueue, settings: AlarmSettings | None = None) -> None:
        """An alarm on schedules of a function that failed for good; once for each queue.

        Args:
            queue: the dead-letter queue.
            settings: what is different. Default: the construct's ``overrides``.
        """
        self._add(RULES["schedule-dead-letters"], self._source.including({"QueueName": queue.queue_name}), settings, of=queue)

    def add_heat(self, collector: HeatCollector, settings: AlarmSettings | None = None) -> None:
        """Alarms on heat that is not collected any more, on errors of the function that collects it, and on its lost schedules.

        Args:
            collector: the collector.
            settings: what is different of ``heat-late``. Default: the construct's ``overrides``.
        """
        self._add_of_function("heat-late", "function", collector.function, settings)
        self.add_function_errors("heat", collector.function)
        self.add_schedule_dead_letters(collector.dead_letters)

    def add_tenants(self, *log_groups: logs.ILogGroup) -> None:
        """A table of the busiest tenants on the dashboard, from the invocation function's log group and those of applications."""
        if self._dashboard is not None:
            self._dashboard.add_tenants(log_groups)

    def add_alarm(
        self,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        metric: cloudwatch.IMetric,
        title: str,
        action: str,
        runbook: str,
        threshold: float,
        breach: Breach = "above",
        period_minutes: int = 5,
        periods: int = 3,
        breaching_periods: int | None = None,
        missing: Missing = "missing",
    ) -> cloudwatch.Alarm:
        """An alarm of your own, on a metric that is checked against the catalogue.

        Args:
            id: the id below this construct, also the alarm's name in `alarms`.
            metric: the metric or math expression. Its period is replaced by ``period_minutes``.
            title: what is the matter, in a few words.
            action: what to do first.
            runbook: address of its page.
            threshold: in the metric's unit.
            breach: on which side of the threshold it fires. Default above.
            period_minutes: length of a period, whole minutes. Default 5.
            periods: how many are looked at. Default 3.
            breaching_periods: how many of them must breach. Default: all.
            missing: what a period without data counts as. Default ``missing``: the alarm shows insufficient data.

        Raises:
            MetricError: the metric is in a namespace of the catalogue, but is not published with this name, statistic, unit, period or
                dimensions.
            AlarmError: the id is taken, or CloudWatch refuses the window.
        """
        check_metric(metric)
        AlarmSettings(period_minutes=period_minutes, periods=periods, breaching_periods=breaching_periods)
        breaching = periods if breaching_periods is None else breaching_periods
        check_window(period_minutes, periods, breaching)
        self._check_free(id)
        page = Page(id=id, title=title, meaning=title, action=action)
        period = cdk.Duration.minutes(period_minutes)
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric.with_(period=period) if isinstance(metric, cloudwatch.Metric | cloudwatch.MathExpression) else metric,
            threshold=threshold,
            comparison_operator=COMPARISONS[breach],
            evaluation_periods=periods,
            datapoints_to_alarm=breaching,
            treat_missing_data=_MISSING[missing],
            alarm_description=description(page, _when(breach, threshold, breaching, periods, period_minutes), runbook),
        )
        self._notify(alarm, self.ticket_topic)
        self._alarms[id] = alarm
        return alarm

    def _add_default(self, rule: Rule) -> None:
        if rule.needs is not None and self._instance is None:
            text = f"The alarm {rule.id!r} is left out: the instance type is not known; pass instance_type."
            cdk.Annotations.of(self).add_info(text)
        elif rule.needs != "gpus" or (self._instance is not None and self._instance.gpus > 0):
            self._add(rule, self._source, None)

    def _check_free(self, id: str) -> None:  # noqa: A002 - CDK's name for it
        if id in self._alarms or id in RULES:
            raise AlarmError("There is such an alarm already", value=id, allowed="another id", fix="Rename it, or use overrides")

    def _add_of_function(self, rule_id: str, dimension: str, function: lambda_.IFunction, settings: AlarmSettings | None) -> None:
        source = self._source.including({dimension: function.function_name})
        self._add(RULES[rule_id], source, settings, of=function if rule_id == "function-throttles" else None)

    def _add(self, rule: Rule, source: MetricSource, settings: AlarmSettings | None, *, of: IConstruct | None = None) -> None:
        if settings is None:
            settings = self._overrides.get(rule.id, AlarmSettings())
        if settings is None:
            return
        chosen = tuned(rule, settings)
        name = rule.id
        construct_id = _construct_id(rule.id)
        if of is not None and rule.id in self._alarms:
            name, construct_id = f"{rule.id} {of.node.path}", f"{construct_id}{of.node.addr[:8]}"
        if name in self._alarms:
            raise AlarmError("There is such an alarm already", value=name, allowed="each alarm once", fix="Remove the second call")
        counts = {} if self._instance is None else {"vcpus": self._instance.vcpus, "gpus": self._instance.gpus}
        self._build(
            name,
            construct_id,
            description(chosen, chosen.condition(), self._page(rule.id)),
            rule_metric(chosen, source, self._instance),
            threshold=chosen.limit(**counts),
            breach=chosen.breach,
            periods=chosen.periods,
            breaching=chosen.breaching_periods,
            missing=chosen.missing,
        )

    def _build(
        self,
        name: str,
        construct_id: str,
        text: str,
        looked_at: Mapping[str, Any],
        *,
        threshold: float,
        breach: Breach,
        periods: int,
        breaching: int,
        missing: Missing,
    ) -> None:
        self._alarms[name] = cloudwatch.CfnAlarm(
            self,
            construct_id,
            alarm_description=text,
            comparison_operator=_OPERATORS[breach],
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=breaching,
            treat_missing_data=missing,
            alarm_actions=self._tell,
            ok_actions=self._tell,
            **looked_at,
        )

    @staticmethod
    def _notify(alarm: cloudwatch.AlarmBase, topic: sns.ITopic) -> None:
        from aws_cdk import aws_cloudwatch_actions as actions

        notify = actions.SnsAction(topic)
        alarm.add_alarm_action(notify)
        alarm.add_ok_action(notify)

    def _import(self, name: str, alarm: cloudwatch.CfnAlarm) -> cloudwatch.IAlarm:
        """The alarm of a rule for whoever asks for it: CDK gets an object of its own for it only then."""
        return cloudwatch.Alarm.from_alarm_arn(self, f"{name} as seen", alarm.attr_arn)

    def _build_composite(self) -> cloudwatch.CompositeAlarm:
        parts = self._section("users", hurting=True)
        if not parts:
            raise AlarmError(
                "The composite alarm has nothing to look at",
                value="every alarm that users feel is switched off",
                allowed="at least one of " + ", ".join(rule.id for rule in RULES.values() if rule.hurts_users),
                fix="Leave one of them on",
            )
        composite = cloudwatch.CompositeAlarm(
            self,
            _construct_id(USERS_HURT.id),
            alarm_rule=cloudwatch.AlarmRule.from_string(" OR ".join(f'ALARM("{arn}")' for arn in parts)),
            alarm_description=description(USERS_HURT, "one of the alarms that users feel is on", self._page(USERS_HURT.id)),
        )
        self._notify(composite, self.topic)
        return composite

    def _build_dashboard(self) -> MonitoringDashboard:
        index = self._page("index")
        board = MonitoringDashboard(self, "Board", source=self._source, instance=self._instance, runbook=index)
        sections = {name: self._section(name) for name in ("users", "cache", "fleet")}
        board.add_endpoint(self.users_hurt.alarm_arn, **sections)
        return board

    def _section(self, section: str, *, hurting: bool = False) -> list[str]:
        """ARNs of the alarms of a section."""
        chosen = (rule for rule in RULES.values() if rule.section == section and (rule.hurts_users or not hurting))
        return [self._arn(rule.id) for rule in chosen if rule.id in self._alarms]

    def _arn(self, name: str) -> str:
        if name not in self._arns:
            alarm = self._alarms[name]
            self._arns[name] = alarm.alarm_arn if isinstance(alarm, cloudwatch.Alarm) else alarm.attr_arn
        return self._arns[name]

    def _page(self, page_id: str) -> str:
        return self._runbook.replace(_UNMISTAKABLE, page_id)


class _Alarms(Mapping[str, cloudwatch.IAlarm]):
    """The alarms as users see them."""

    def __init__(
        self,
        alarms: Mapping[str, cloudwatch.CfnAlarm | cloudwatch.Alarm],
        imported: Callable[[str, cloudwatch.CfnAlarm], cloudwatch.IAlarm],
    ) -> None:
        self._alarms, self._import = alarms, imported
        self._imported: dict[str, cloudwatch.IAlarm] = {}

    def __getitem__(self, name: str) -> cloudwatch.IAlarm:
        alarm = self._alarms[name]
        if isinstance(alarm, cloudwatch.Alarm):
            return alarm
        if name not in self._imported:
            self._imported[name] = self._import(name, alarm)
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._alarms)

    def __len__(self) -> int:
        return len(self._alarms)


def _when(breach: Breach, threshold: float, breaching: int, periods: int, period_minutes: int) -> str:
    return f"{breach} {threshold:g}, in {breaching} of {periods} periods of {period_minutes} min"


def _instance(name: str | None) -> instances.InstanceType | None:
    if name is None or is_token(name):
        return None
    try:
        return instances.instance(name)
    except instances.InstanceTypeError as error:
        raise AlarmError(
            "CPU alarms cannot be scaled to the instance type", value=name, allowed="a type of the catalogue", fix="Correct instance_type"
        ) from error


def _construct_id(rule_id: str) -> str:
    return "".join(part.capitalize() for part in rule_id.split("-"))
