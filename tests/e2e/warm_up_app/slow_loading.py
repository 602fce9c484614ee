"""What stands in for the models' container: a load takes as long as a middling artifact's, most of it waiting, and answers come at once.

Requests that are marked are written down beside this file: when they were answered, and how they were marked.
"""

import json
import os
import time
from pathlib import Path

LOAD_SECONDS = 0.4
JOURNAL = Path(__file__).with_name("marked.jsonl")


def handle(data, context):
    if data is None:
        time.sleep(LOAD_SECONDS)
        return None
    headers = {name.lower(): value for name, value in context.get_all_request_header(0).items()}
    mark = headers.get("x-amzn-sagemaker-custom-attributes", "")
    if mark:
        line = json.dumps({"time": time.time(), "mark": mark, "server": os.getppid()}) + "\n"
        with JOURNAL.open("a") as journal:
            journal.write(line)
    context.set_response_content_type(0, "text/csv")
    return ["1.0"]
