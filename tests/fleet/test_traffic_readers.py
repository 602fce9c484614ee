"""The readers of traces: what they make of a file, and how they name what is wrong in it."""

import gzip

import numpy as np
import pytest

from mme_fleet.traffic import TraceFormatError, read_azure, read_genai_loads, read_genai_requests
from tests.fleet.traces import FOLDER, needs_traces

CALLS = "HashFunction,HashApp,HashOwner,minute_1,minute_2,minute_3\nf,a,o,0,2,1\ng,b,o,1,0,0\nh,c,p,0,0,5\n"
MEMORY = "HashApp,HashOwner,SampleCount,AverageAllocatedMb\na,o,3,100\nb,o,3,1.5\nc,p,3,0\n"
RUNS = "HashFunction,HashApp,HashOwner,Count,Average\nf,a,o,3,250\ng,b,o,1,1000\nh,c,p,5,0\n"
NAMES = {"calls": "calls.csv", "memory": "memory.csv", "runs": "runs.csv.gz"}

REQUESTS = (
    "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,checkpoint_model_version_id,num_lora\n"
    "2024-11-15 16:57:50,TXT_2_IMG,SUCCEED,32.0,G1,M1,0\n"
    "2024-11-15 16:57:40,TXT_2_IMG,FAILED,3,G2,M1,2\n"
    "2024-11-16 00:00:01,IMG_2_IMG,SUCCEED,30,G1,M1,0\n"
    "2024-11-16 00:00:02,IMG_2_IMG,SUCCEED,30,G1,,0\n"
)


@pytest.fixture
def azure(tmp_path):
    """Writes the three files, one of them with other content, and reads them."""

    def read(**other):
        content = {"calls": CALLS, "memory": MEMORY, "runs": RUNS} | other
        (tmp_path / "calls.csv").write_text(content["calls"])
        (tmp_path / "memory.csv").write_text(content["memory"])
        (tmp_path / "runs.csv.gz").write_bytes(gzip.compress(content["runs"].encode()))
        return read_azure(tmp_path, **NAMES)

    return read


@pytest.fixture
def genai(tmp_path):
    def read(text=REQUESTS):
        path = tmp_path / "requests.csv"
        path.write_text(text)
        return read_genai_requests(path)

    return read


class TestAzure:
    def test_a_sample_has_calls_memory_and_run_time_of_every_function(self, azure):
        sample = azure()
        assert (sample.functions, sample.apps, sample.owners) == (("f", "g", "h"), ("a", "b", "c"), ("o", "o", "p"))
        assert sample.calls.tolist() == [[0, 2, 1], [1, 0, 0], [0, 0, 5]]
        assert sample.calls_per_function.tolist() == [3, 1, 5]
        assert sample.memory_mib.tolist() == [100, 1.5, 0]
        assert sample.run_seconds.tolist() == [0.25, 1, 0]

    def test_its_trace_has_every_call_in_its_minute_in_the_order_of_time(self, azure):
        trace = azure().trace(7)
        assert (len(trace), trace.duration_seconds) == (9, 180)
        assert trace.windows(60).T.tolist() == azure().calls.tolist()
        assert (np.diff(trace.seconds) > 0).all()

    def test_the_same_seed_gives_the_same_times_and_another_one_others(self, azure):
        times = [azure().trace(seed).seconds.tolist() for seed in (1, 1, 2)]
        assert times[0] == times[1] != times[2]

    def test_owners_are_tenants_and_apps_give_the_sizes(self, azure):
        population = azure().population()
        assert population.tenant.tolist() == [0, 0, 1]
        assert population.memory_bytes.tolist() == [100 * 1_048_576, 1_572_864, 1]
        assert [name.split("/")[0] for name in population.models] == ["tenant-0000", "tenant-0000", "tenant-0001"]
        assert population.load_seconds[0] == pytest.approx(0.3 + 0.1048576 * 7)

    def test_the_tail_has_the_functions_with_few_calls(self, azure):
        tail = azure().tail(3)
        assert (tail.functions, tail.apps, tail.calls.sum()) == (("f", "g"), ("a", "b"), 4)

    @pytest.mark.parametrize(
        ("file", "old", "new", "says"),
        [
            ("calls", "0,2,1", "0,-2,1", r"calls.csv, line 2: minute 2 is '-2': use a whole number of 0 or more"),
            ("calls", "0,0,5", "0,0,x", r"calls.csv, line 4: minute 3 is 'x'"),
            ("calls", "0,0,5", "0,0,1.5", r"calls.csv, line 4: minute 3 is '1.5'"),
            ("calls", "0,0,5", "0,0", r"calls.csv, line 4: 5 cells, but the header has 6"),
            ("calls", "g,b,o", "f,b,o", r"calls.csv, line 3: function f comes a second time"),
            ("calls", "g,b,o", ",b,o", r"calls.csv, line 3: HashFunction is empty"),
            ("calls", "g,b,o", "g,z,o", r"calls.csv, line 3: app z has no line in memory.csv"),
            ("calls", "g,b,o", "k,b,o", r"calls.csv, line 3: function k has no line in runs.csv.gz"),
            ("calls", "HashOwner", "Owner", r"calls.csv, line 1: there is no column 'HashOwner', only HashFunction, HashApp"),
            ("memory", "100", "much", r"memory.csv, line 2: AverageAllocatedMb is 'much': use a number of 0 or more"),
            ("memory", "100", "nan", r"memory.csv, line 2: AverageAllocatedMb is 'nan'"),
            ("memory", "b,o,3", "a,o,3", r"memory.csv, line 3: a comes a second time"),
            ("runs", "250", "-1", r"runs.csv.gz, line 2: Average is '-1'"),
        ],
    )
    def test_a_malformed_line_is_named_by_file_and_number(self, azure, file, old, new, says):
        content = {"calls": CALLS, "memory": MEMORY, "runs": RUNS}[file]
        with pytest.raises(TraceFormatError, match=says):
            azure(**{file: content.replace(old, new)})

    def test_a_file_without_minutes_is_refused(self, azure):
        with pytest.raises(TraceFormatError, match="no column of a minute"):
            azure(calls="HashFunction,HashApp,HashOwner\nf,a,o\n")


class TestGenAi:
    def test_requests_come_in_the_order_of_time_from_midnight(self, genai):
        requests = genai()
        assert requests.seconds.tolist() == [61060, 61070, 86401, 86402]
        assert requests.duration_seconds == 2 * 86400
        assert [requests.groups[group] for group in requests.group] == ["G2", "G1", "G1", "G1"]
        assert requests.base_model.tolist() == [0, 0, 0, -1]
        assert requests.loras.tolist() == [2, 0, 0, 0]
        assert requests.succeeded.tolist() == [False, True, True, True]

    def test_its_trace_has_a_model_for_each_tenants_base_model(self, genai):
        trace = genai().trace(memory_bytes=10, load_seconds=20)
        assert len(trace) == 3  # one request names no model
        assert len(trace.population) == 2
        assert trace.service_seconds.tolist() == [3, 32, 30]
        assert sorted(trace.population.service_seconds.tolist()) == [3, 31]
        assert trace.requests_per_model.tolist() == [2, 1]

    @pytest.mark.parametrize(
        ("old", "new", "says"),
        [
            ("2024-11-15 16:57:40", "yesterday", "line 3: gmt_create is 'yesterday': use a time as"),
            ("32.0", "", "line 2: exec_time_seconds is ''"),
            ("G2", "", "line 3: groupId is empty"),
        ],
    )
    def test_a_malformed_line_is_named_by_number(self, genai, old, new, says):
        with pytest.raises(TraceFormatError, match=says) as caught:
            genai(REQUESTS.replace(old, new))
        assert caught.value.line in (2, 3)

    def test_load_times_come_in_seconds(self, tmp_path):
        (tmp_path / "loads.csv").write_text("timestamp_anon,value,container_ip\n1,2639.0,c\n2,500,c\n")
        assert read_genai_loads(tmp_path / "loads.csv").tolist() == [2.639, 0.5]


class TestFiles:
    def test_a_compressed_file_that_ends_early_is_named(self, tmp_path):
        packed = gzip.compress(("value\n" + "".join(f"{number * 7919 % 1000}\n" for number in range(50_000))).encode())
        (tmp_path / "loads.csv.gz").write_bytes(packed[: len(packed) // 2])
        with pytest.raises(TraceFormatError, match=r"loads.csv.gz, line \d+: the compressed data is damaged"):
            read_genai_loads(tmp_path / "loads.csv.gz")

    def test_a_byte_that_is_not_utf8_is_named_by_its_line(self, tmp_path):
        (tmp_path / "loads.csv").write_bytes(b"value\n" + b"1\n" * 3000 + b"2\xff\n" + b"1\n" * 10)
        with pytest.raises(TraceFormatError, match="line 3002: not text in UTF-8 at its character 2"):
            read_genai_loads(tmp_path / "loads.csv")

    @pytest.mark.parametrize(("content", "says"), [("", "line 1: there is no column 'value', only nothing"), ("value\n", "only a header")])
    def test_a_file_without_lines_is_refused(self, tmp_path, content, says):
        (tmp_path / "loads.csv").write_text(content)
        with pytest.raises(TraceFormatError, match=says):
            read_genai_loads(tmp_path / "loads.csv")

    def test_a_file_that_is_not_there_is_told_by_the_system(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"loads.csv"):
            read_genai_loads(tmp_path / "loads.csv")


@needs_traces
def test_the_genai_trace_is_the_one_of_the_readme():
    requests = read_genai_requests(FOLDER)
    assert (len(requests), len(requests.groups), len(requests.base_models)) == (26_823, 4_247, 86)
    assert np.percentile(requests.service_seconds, (50, 95, 99)).tolist() == [23, 69, 106]
    for kind, expected in (("base", (22.7, 42.0, 51.8)), ("lora", (4.4, 6.1, 8.2))):
        loads = read_genai_loads(FOLDER / f"alibaba_gentd26_{kind}_load_ms.csv.gz")
        assert np.percentile(loads, (50, 90, 99)) == pytest.approx(expected, abs=0.1)
