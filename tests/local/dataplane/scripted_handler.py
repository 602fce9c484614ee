"""A handler for tests: the artifact says how loading and answering go. It runs inside a model server."""

import json
import os
import time
from pathlib import Path

script = {}


def handle(data, context):
    if data is None:
        script.update(json.loads((Path(context.system_properties["model_dir"]) / "script.json").read_text()))
        if script.get("load") == "raise":
            raise ValueError
        if script.get("load") == "out of memory":
            raise MemoryError
        return None
    if script.get("invoke") == "die":
        os._exit(1)
    if "gate" in script:
        Path(script["gate"] + ".reached").touch()
        while not Path(script["gate"]).exists():
            time.sleep(0.005)
    headers = context.get_all_request_header(0)
    seen = {name.lower(): value for name, value in headers.items() if isinstance(value, str)}
    context.set_response_content_type(0, "application/json")
    return [json.dumps({"headers": seen, "body": bytes(data[0]["body"]).decode(), "environment": dict(os.environ)})]
