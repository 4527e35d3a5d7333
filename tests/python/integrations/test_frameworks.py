"""The examples of services: each runs, and says what doc/requests.rst shows."""

import sys
from pathlib import Path

import children
import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SAYS = {
    "fastapi_service": """\
GET /reports/{year} was slow:
  GET /orders/{number} 200
  GET /orders/{number} 200
  GET /orders/{number} 200
  GET /reports/{year} 200 sleep
""",
    "flask_service": """\
GET /orders/<int:number> 200
GET /lines 200
GET None 404
price: /orders/<int:number> anna
""",
    "django_service": """\
GET /orders/<int:number> 200
GET None 404
GET /orders/<int:number> 200
GET /lines 200
price: /orders/<int:number> anna
price: /orders/<int:number> anna
""",
    "celery_tasks": """\
[499500, 1999000, 4498500]
task shop.price done
task shop.price done
task shop.price done
request
adding
""",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAYS)
def test_an_example_of_a_framework_runs(name, tmp_path):
    framework = name.partition("_")[0]
    pytest.importorskip(framework, reason=f"{framework} is not installed for this Python")

    done = children.run(
        sys.executable, EXAMPLES / f"{name}.py", cwd=tmp_path, PYTHONPATH=children.path()
    )

    # A line may go on: which function took most of a quick request depends on the machine. Before
    # them another request may be slow, on a machine that is busy.
    lines = SAYS[name].splitlines()
    for line, printed in zip(lines, done.stdout.splitlines()[-len(lines) :], strict=True):
        assert printed.startswith(line), done.stdout
