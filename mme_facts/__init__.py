"""What is known about SageMaker multi-model endpoints and this library's own names: the standard library only.

- names: `grammar` (ids, keys, IAM patterns), `table` (the registry's table), `environment` (variables of the functions)
- SageMaker: `limits`, `instances`, `images`, `dockerfile` (labels of an image), `artifacts` (what an archive may hold),
  `runtime_errors`
- the API: `api` (its calls), `problems` (its errors)
- fleets: `heat` (how it is collected), `warm_up` (how they are warmed)
- watching: `metrics` (the catalogue), `thresholds` (rules of alarms, runbook and doctor), `telemetry` (log lines)
- `lazy` (lazy exports)
"""
