"""What the demo calls a wrong prediction."""

import pytest

from mme_cli.demo import models
from mme_cli.demo.run import TOLERANCE, DemoReport, DemoRow, _difference
from mme_cli.errors import CommandError


def row(difference):
    return DemoRow("acme", "iris", "v1-0123456789ab", 10.0, 1.0, "i-1", 1, difference)


@pytest.mark.parametrize(
    ("got", "expected", "difference"),
    [
        ([[0.5, 0.5]], [[0.5, 0.5]], 0.0),
        ([[0.5], [0.25]], [[0.5], [0.5]], 0.25),
        ([[0.5]], [[0.5, 0.5]], float("inf")),
        ([[0.5]], [[0.5], [0.5]], float("inf")),
        ([[0.5], [float("nan")]], [[0.5], [0.5]], float("inf")),
    ],
)
def test_the_difference_is_the_greatest_and_infinite_where_shapes_or_numbers_fail(got, expected, difference):
    assert _difference(got, expected) == difference


def test_a_report_is_wrong_when_one_prediction_is_off_by_more_than_the_tolerance():
    assert not DemoReport([row(0.0), row(TOLERANCE)], 2, 0, 1.0).wrong
    report = DemoReport([row(0.0), row(2 * TOLERANCE)], 2, 0, 1.0)
    assert report.wrong == [report.rows[1]]
    assert report.document()["holds"] is False


def test_prepared_models_are_read_back_and_a_folder_without_them_is_named(tmp_path):
    prepared = list(models.prepare(tmp_path))
    assert models.load(tmp_path) == prepared
    assert len(prepared) == 6
    assert all(len(model.rows) == len(model.expected) == 20 for model in prepared)
    with pytest.raises(CommandError, match="no prepared demo models"):
        models.load(tmp_path / "empty")
