"""A model is a JSON file of words and their scores; a prediction is the sum of a text's scores."""

import json
from pathlib import Path

_scores = {}


def handle(data, context):
    """Called once with ``None`` to load the model, then with every batch of requests."""
    if data is None:
        folder = Path(context.system_properties["model_dir"])
        _scores.update(json.loads((folder / "scores.json").read_text("utf-8")))
        return None
    answers = []
    for index, request in enumerate(data):
        words = bytes(request["body"]).decode("utf-8").lower().split()
        context.set_response_content_type(index, "application/json")
        answers.append(json.dumps({"score": sum(_scores.get(word, 0) for word in words)}))
    return answers
