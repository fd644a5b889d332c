"""docker/README.md carried out: images built, the testbed started, used and taken down, in a real engine.

The base images are stand-ins made of this machine's packages (.ci/containers), under the names in docker/.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.dataset
import pytest

from ildm import __version__
from tests.docker.engine.engine import Engine
from tests.docker.engine.project import README, copy_project, recipe
from tests.docker.engine.testbed import COMPOSE, PATIENCE, Testbed, wait_for
from tests.docker.files import BROKERS, DOCKER, NODES, PROJECT, Stage, services, stages

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1500)]

BUILT = ("ildm-node:0.2.0", "ildm-moquette:0.17")
BUILDER = stages(DOCKER / "Dockerfile")["build"].image


def test_the_load_script_knows_every_image_that_is_not_built_here() -> None:
    bases = [stage.image for path in DOCKER.glob("*Dockerfile") for stage in own_stages(path)]
    pulled = [service["image"] for service in services().values() if "build" not in service]
    made = re.findall(r"^image (\S+)", (PROJECT / ".ci/containers/load").read_text(), re.M)
    assert sorted(made) == sorted({*bases, *pulled})


def own_stages(path: Path) -> list[Stage]:
    """Those not built on another stage."""
    found = stages(path)
    return [stage for stage in found.values() if stage.image not in found]


# images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", BUILT)
def test_an_image_runs_as_a_user_of_its_own_and_says_how_to_check_it(
    testbed: Testbed, engine: Engine, image: str
) -> None:
    (found,) = json.loads(engine.run("docker", "image", "inspect", image))
    config = found["Config"]
    user, group = config["User"].split(":")
    assert (int(user) > 10000, int(group) > 10000) == (True, True)
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["StopSignal"] == "SIGTERM"
    assert not [pair for pair in config["Env"] if re.search(r"(?i)secret|password|token|key=", pair)]
    inside = engine.run(
        *("docker", "run", "--rm", "--network", "none", "--read-only", "--entrypoint", "id", image, "-u")
    )
    assert inside.split() == [user]


def test_the_nodes_run_compiled(testbed: Testbed) -> None:
    for node in NODES:
        said = testbed.run(shlex.join((*COMPOSE, "exec", node, "ildm", "--version")))
        assert said == f"ildm {__version__} (compiled)\n", node


@pytest.mark.long
def test_an_image_compiles_by_itself(engine: Engine, tmp_path: Path) -> None:
    """Without what the other tests here give it, see `copy_project`."""
    project, image = copy_project(tmp_path / "ildm", compiled=False), "ildm-node:by-itself"
    build = ("docker", "build", "--quiet", "-f", "docker/Dockerfile", "--target", "node", "-t", image, ".")
    engine.run(*build, cwd=project, timeout=PATIENCE)
    said = engine.run("docker", "run", "--rm", "--network", "none", image, "--version")
    assert said == f"ildm {__version__} (compiled)\n"


def test_what_compiles_stays_behind(testbed: Testbed, engine: Engine) -> None:
    programs = "cc gcc mypyc hatchling"
    look = f"for name in {programs}; do command -v $name; done; find / -xdev -name Python.h; true"

    def found(image: str) -> str:
        return engine.run(
            *("docker", "run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", look)
        )

    assert found(BUILT[0]) == ""
    assert {"gcc", "Python.h"} <= {Path(line).name for line in found(BUILDER).splitlines()}


def test_no_layer_holds_the_secret(testbed: Testbed, engine: Engine) -> None:
    secret = (testbed.project / "docker/secrets/link-secret").read_text()
    layers = set(layers_of(engine, *engine.lines("docker", "image", "ls", "--all", "--quiet", "--no-trunc")))
    layers -= set(layers_of(engine, "ildm-stand-in:1"))
    assert layers
    assert not found_in(layers, secret)
    # and would be seen, were it there
    assert found_in(layers, 'description = "ILDM: the interworking layer')


def layers_of(engine: Engine, *images: str) -> list[Path]:
    """Directories of images' layers."""
    drivers = [
        found["GraphDriver"] for found in json.loads(engine.run("docker", "image", "inspect", *images))
    ]
    assert {driver["Name"] for driver in drivers} == {"overlay2"}
    lists = [driver["Data"].get(name, "") for driver in drivers for name in ("LowerDir", "UpperDir")]
    return [engine.seen(Path(text)) for part in lists for text in part.split(":") if text]


def found_in(layers: set[Path], text: str) -> list[str]:
    done = subprocess.run(
        [
            "grep",
            "--recursive",
            "--files-with-matches",
            "--fixed-strings",
            "--max-count=1",
            "-e",
            text,
            *layers,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout.splitlines()


# the testbed ----------------------------------------------------------------------------------


def test_containers_are_confined_as_the_file_says(testbed: Testbed) -> None:
    for name in (*BROKERS, *NODES):
        found = testbed.inspect(name)
        host = found["HostConfig"]
        assert host["ReadonlyRootfs"] is True, name
        assert host["CapDrop"] == ["ALL"], name
        assert host["SecurityOpt"] == ["no-new-privileges:true"], name
        assert host["Memory"] > 0, name
        assert host["PidsLimit"] > 0, name
        assert found["RestartCount"] == 0, name
        processes = testbed.engine.lines("docker", "top", found["Id"], "-eo", "pid,uid")[1:]
        assert processes, name
        assert "0" not in {line.split()[1] for line in processes}, name


def test_a_message_from_every_site_reaches_every_site(testbed: Testbed) -> None:
    testbed.wait_linked()
    testbed.exchange(f"all/{uuid.uuid4().hex}")


def test_the_readmes_message_arrives(testbed: Testbed) -> None:
    testbed.wait_linked()
    subscribe, publish, *_ = recipe("Try")
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(testbed.run, subscribe)
        wait_for(lambda: heard.done() or wants(testbed, "activemq", "demo/#"), "interest at the other site")
        testbed.run(publish)
        assert heard.result() == "demo/hello from ActiveMQ\n"


def wants(testbed: Testbed, name: str, topic: str) -> bool:
    rows = testbed.admin(name).subscriptions().items
    return any(row["filter"] == topic and row["source"].startswith("neighbor ") for row in rows)


def test_what_the_readme_looks_at_can_be_seen(testbed: Testbed) -> None:
    testbed.wait_linked()
    seen = {line.partition(" ildm ")[2]: testbed.run(line) for line in recipe("Look") if ends(line)}
    assert set(seen) == {"status", "neighbor list", "subscriptions"}
    assert "mosquitto" in seen["status"]
    assert {"activemq", "rabbitmq"} <= set(seen["neighbor list"].split())


def ends(line: str) -> bool:
    """Whether a command ends by itself."""
    return not {"shell", "--follow"} & set(line.split())


def test_the_load_reaches_every_site(testbed: Testbed) -> None:
    up, copy, *_ = recipe("Load")
    printed = testbed.run(up)
    # void where this machine has so much else to do that messages were sent late
    said = r"/results/run=\S+: .*, generator (?:ok|void.*); in the whole run \d+ of (\d+) deliveries missing"
    verdict = re.search(said, printed)
    assert verdict, printed[-3000:]
    assert int(verdict[1]) > 0
    (testbed.project / "docker/results").mkdir()
    if testbed.engine.compose == 1:  # which has no cp
        copy = shlex.join(["docker", "cp", f"{testbed.container('load')}:/results/.", "docker/results"])
    testbed.run(copy)
    (run,) = (testbed.project / "docker/results").glob("run=*")
    topics = [topic["name"] for topic in json.loads((run / "run.json").read_text())["scenario"]["topics"]]
    received = pyarrow.dataset.dataset(run / "role=receive").to_table(columns=["topic", "subscriber"])
    pairs = set(zip(*(column.to_pylist() for column in received.columns), strict=True))
    for number, topic in enumerate(topics):
        hearers = sum(pair[0] == number for pair in pairs)
        place = topic.partition("/")[0]
        assert hearers == {"shared": len(BROKERS), "local": 2, "probe": 1}[place], topic


def test_a_site_stops_and_comes_back_while_the_others_go_on(testbed: Testbed) -> None:
    testbed.wait_linked()
    site = ("node-activemq", "activemq")
    command = f"{shlex.join((*COMPOSE, 'stop', *site))}"
    assert f"`{command}`" in " ".join((DOCKER / "README.md").read_text().split())
    testbed.run(command)
    states = [testbed.inspect(name)["State"] for name in site]
    assert [state["Status"] for state in states] == ["exited", "exited"]
    assert states[0]["ExitCode"] == 0
    wait_for(lambda: testbed.admin("mosquitto").status()["links"]["active"] == 1, "the link's end")
    testbed.exchange(f"three/{uuid.uuid4().hex}", [name for name in BROKERS if name != "activemq"])
    testbed.run(command.replace(" stop ", " start "))
    testbed.wait_healthy(*site)
    testbed.wait_linked()
    testbed.exchange(f"four/{uuid.uuid4().hex}")


def test_a_node_of_your_own(testbed: Testbed, engine: Engine) -> None:
    """With the configuration in the README, which names a broker that is not there."""
    (config,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.M | re.S)
    (testbed.project / "node.yaml").write_text(config)
    build, run = recipe("A node of your own")
    testbed.run(build)
    words = shlex.split(run)
    name = words[words.index("--name") + 1]
    # the testbed has the port
    testbed.run(run.replace("127.0.0.1:1883:1883", "127.0.0.1:2883:1883"))

    def healthy() -> bool:
        (found,) = json.loads(engine.run("docker", "inspect", name))
        assert found["State"]["Running"], engine.run("sh", "-c", f"docker logs {name} 2>&1")
        return bool(found["State"]["Health"]["Status"] == "healthy")

    try:
        wait_for(healthy, "health of the node")
        status = json.loads(engine.run("docker", "exec", name, "ildm", "status", "--json"))
        assert status["node_id"] == name
    finally:
        engine.run("docker", "rm", "--force", "--volumes", name)
        engine.run("docker", "volume", "rm", "node-state")


def test_down_leaves_nothing(testbed: Testbed, engine: Engine) -> None:
    (down,) = recipe("Stop")
    testbed.run(down)
    mine = ["--quiet", "--filter", "label=com.docker.compose.project=ildm"]
    assert engine.lines("docker", "ps", "--all", *mine) == []
    assert engine.lines("docker", "network", "ls", *mine) == []
    assert len(engine.lines("docker", "volume", "ls", *mine)) == len(NODES) + 1  # state, results
    testbed.run(f"{down} --volumes")
    assert engine.lines("docker", "volume", "ls", "--quiet") == []
    assert engine.lines("docker", "ps", "--all", "--quiet") == []
    interfaces = engine.run(*engine.on_host("ip", "-oneline", "link"))
    assert "docker0" in interfaces
    assert not re.findall(r" (br-|veth)\w+", interfaces)
