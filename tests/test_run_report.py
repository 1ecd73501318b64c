"""run.json of real runs conforms to docs/formats/run.schema.json, for every outcome."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest
from workbench import Workbench

SCHEMA = Path(__file__).parent.parent / "docs" / "formats" / "run.schema.json"

pytestmark = pytest.mark.usefixtures("storage")


def check(report: dict) -> None:
    """Validates a report against the schema."""
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(report)


def test_of_a_run_that_is_done(bench: Workbench) -> None:
    bench.script(
        'var a = Data.get("in"); var b = Data.define("B", 2); var f = Data.define("F");copy({from: a, to: b[0]}); copy({from: b[0], to: b[1]}); flaky({to: f});'
    )
    run = bench.run()
    assert run.code == 0, run.err
    check(run.report)
    assert (run.report["outcome"], run.report["exit_code"]) == ("done", 0)
    assert [tool["runs"] for tool in run.report["by_tool"]] == [2, run.report["tasks"][2]["attempts"]]
    linked = [member for member in run.report["data"] if "link" in member]
    assert linked, "outputs are linked"
    for member in linked:
        assert (bench.report / unquote(member["link"])).resolve() == Path(member["exported"]).resolve()


def test_of_a_run_that_failed(bench: Workbench) -> None:
    bench.script(
        'var a = Data.define("A"), b = Data.define("B"), c = Data.define("C"), d = Data.define("D"), e = Data.define("E");'
        "shell({script: 'printf \"\\\\377\\\\000 odd\" >&2; exit 3', to: a}); copy({from: a, to: b});"
        "shell({script: 'kill -9 $$', to: c}); shell({script: 'true', to: d}); slow({to: e});"
    )
    run = bench.run()
    assert run.code == 1
    check(run.report)
    assert [task["reason"]["kind"] for task in run.report["tasks"]] == ["exit", "upstream", "signal", "missing-output", "timeout"]


def test_of_a_run_that_was_interrupted(bench: Workbench) -> None:
    bench.script("var d = Data.define(\"D\", 5); for (var i = 0; i < 5; i++) shell({script: 'sleep 60', to: d[i]});")
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    report = json.loads((bench.report / "run.json").read_text())
    check(report)
    assert (report["outcome"], report["exit_code"]) == ("interrupted", 130)
    assert {task["reason"]["kind"] for task in report["tasks"]} == {"cancelled"}
    assert (report["totals"]["tasks_failed"], report["totals"]["tasks_cancelled"]) == (0, 5)


def test_of_a_run_of_nothing(bench: Workbench) -> None:
    bench.script("")
    check(bench.run().report)
