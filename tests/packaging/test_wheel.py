"""Tests of the wheel: its contents, and each extra by itself in an environment without other packages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import requires
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.docs.pages import blocks_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_FOR_USERS = {"dev", "docs"}
pytestmark = pytest.mark.xdist_group("wheel")

JOB = """
import asyncio
from romancy import *

@activity
async def double(ctx: ActivityContext, number: int) -> int:
    return 2 * number

@workflow
async def job(ctx: WorkflowContext, number: int) -> int:
    return await double(ctx, number)

async def run(app):
    async with app:
        return await (await app.start_workflow(job, 21)).result()

assert asyncio.run(run(App("jobs.db", workflows=[job]))) == 42
"""

USES = {
    "cli": "from romancy.cli.main import main; assert main(['list', '--database', 'jobs.db']) == 0",
    "crypto": """
from romancy.codec import Encrypt
app = App("secret.db", workflows=[job], codec=Encrypt({"2026": Encrypt.generate_key()}))
assert asyncio.run(run(app)) == 42
""",
    "django": "import romancy.integrations.django",
    "http": """
async def ask():
    sent = []
    async def send(message): sent.append(message)
    async def receive(): return {"type": "http.request", "body": b""}
    scope = {"type": "http", "method": "GET", "path": "/health/live", "headers": [], "query_string": b"", "root_path": ""}
    async with App("jobs.db", workflows=[job]) as app:
        await app(scope | {"client": ("127.0.0.1", 1), "http_version": "1.1", "scheme": "http"}, receive, send)
    assert sent[0]["status"] == 200, sent
asyncio.run(ask())
""",
    "kafka": "from romancy.brokers import KafkaBroker; KafkaBroker('127.0.0.1:1', 'topic')",
    "mcp": "from romancy.integrations.mcp import ToolServer",
    "mysql": "App('mysql://user@127.0.0.1:1/jobs').metrics(); OPEN('mysql://user@127.0.0.1:1/jobs')",
    "nats": "from romancy.brokers import NATSBroker; NATSBroker('nats://127.0.0.1:1', subject='jobs')",
    "opentelemetry": """
from romancy.integrations.otel import OpenTelemetry
assert asyncio.run(run(App("jobs.db", workflows=[job], hooks=OpenTelemetry()))) == 42
""",
    "postgres": "OPEN('postgresql://user@127.0.0.1:1/jobs')",
    "prometheus": "from romancy.integrations.prometheus import register; register(App('jobs.db', workflows=[job]))",
    "pydantic-ai": "import romancy.integrations.pydantic_ai, romancy.integrations.llm",
    "serve": "from romancy.cli.main import main; assert main(['serve', 'nowhere:app']) == 0",
    "sqlalchemy": """
from sqlalchemy import text

@activity
async def rows(ctx: ActivityContext) -> int:
    return (await ctx.session.execute(text("SELECT 42"))).scalar_one()

@workflow
async def count(ctx: WorkflowContext) -> int:
    return await rows(ctx)

async def counted():
    async with App("jobs.db", workflows=[count]) as app:
        return await (await app.start_workflow(count)).result()
assert asyncio.run(counted()) == 42
""",
}
"""A program for each extra that needs it, and needs no server."""
OPEN = """
from romancy.clock import SystemClock
from romancy.store.open import open_store
def OPEN(address): open_store(address, clock=SystemClock())
"""

Ran = subprocess.CompletedProcess[str]
Environment = Callable[..., Callable[[str], Ran]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built like the one that `pip install romancy` downloads."""
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions of the constraints file, without hashes, because the wheel built here has none."""
    lines = re.findall(r"^([\w.\[\]-]+==[^\\\s]+.*?) *\\?$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    file = tmp_path_factory.mktemp("pins") / "pins.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.fixture
def environment(wheel: Path, pins: Path, tmp_path: Path) -> Environment:
    """A function that creates an environment with the wheel, extras and packages, and returns a runner of programs."""

    def make(extras: str, *others: str) -> Callable[[str], Ran]:
        home = tmp_path / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120)
        python = str(home / "bin" / "python")
        wanted = [f"romancy{extras} @ {wheel.as_uri()}", *others]
        _pip("--python", python, "install", "--no-compile", "--constraint", str(pins), *wanted)

        def run(program: str) -> Ran:
            (tmp_path / "program.py").write_text(program, encoding="utf-8")
            command = [python, "program.py"]
            return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

        return run

    return make


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_extra_has_a_program_here() -> None:
    assert set(USES) == set(PROJECT["optional-dependencies"]) - NOT_FOR_USERS - {"all"}


def test_the_wheel_has_exactly_the_files_of_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    held = {name for name in names if not re.match(r"romancy-[\w.]+\.dist-info/", name)}
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    assert held == {name.removeprefix("src/") for name in tracked}
    assert "romancy/py.typed" in held
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_environment_of_the_demonstration_has_the_dependencies() -> None:
    def needed(name: str) -> set[str]:
        lines = map(Requirement, requires(name) or [])
        here = [line for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]
        wanted = {canonicalize_name(line.name) for line in here}
        return wanted.union(*map(needed, wanted))

    (pattern,) = re.findall(r"--only '([\w|-]+)'", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(pattern.split("|")) == needed("romancy")


def test_without_extras_workflows_run_and_missing_packages_are_named(environment: Environment) -> None:
    run = environment("")
    done = run(JOB + "import importlib.metadata as m; print(sorted(d.name.lower() for d in m.distributions()))")
    assert done.returncode == 0, done.stderr
    wanted = {re.split(r"[^\w-]", one)[0].replace("_", "-") for one in PROJECT["dependencies"]}
    assert wanted | {"romancy"} <= set(re.findall(r"'([\w-]+)'", done.stdout.replace("_", "-")))
    assert len(done.stdout.split(",")) <= 7, f"too many packages: {done.stdout}"
    for extra, program in USES.items():
        if extra == "sqlalchemy":
            program = program.replace("from sqlalchemy import text", "text = str")
        missing = run(JOB + OPEN + program)
        assert missing.returncode != 0, extra
        assert f"pip install 'romancy[{extra}]'" in missing.stderr + missing.stdout, f"{extra}: {missing.stderr}"


@pytest.mark.parametrize("extra", sorted(USES))
def test_each_extra_alone_is_enough_for_its_part(environment: Environment, extra: str) -> None:
    done = environment(f"[{extra}]")(JOB + OPEN + USES[extra])
    if extra == "serve":  # the command fails only because the app does not exist
        assert "nowhere" in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_with_logfire_a_trace_is_as_documented(environment: Environment) -> None:
    blocks = blocks_of(ROOT / "docs" / "how-to" / "tracing.md")
    program, shown = next((one, then) for one, then in pairwise(blocks) if one.file == "with_logfire.py")
    done = environment("[opentelemetry]", "logfire")(program.text)
    assert done.returncode == 0, done.stderr
    assert f"python with_logfire.py\n{done.stdout}" == shown.text
