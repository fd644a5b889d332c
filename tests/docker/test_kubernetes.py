"""The example for Kubernetes: its parts fit each other, and the node can use its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ildm.config import Config, load_config
from ildm.core.plugin.loading import load_plugins
from tests.docker.files import CLIENT_PORT, DOCKER, LINK_PORT, built_stage, services

EXAMPLE = DOCKER / "kubernetes/ildm.yaml"


def parts() -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name."""
    documents = yaml.safe_load_all(EXAMPLE.read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = parts()["StatefulSet", "ildm"]["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = (each for each in pod()["containers"] if each["name"] == name)
    return dict(found)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The node's, as it is in the first pod."""
    for each in container("node")["env"]:
        assert each["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        monkeypatch.setenv(each["name"], "ildm-0")
    file = tmp_path / "node.yaml"
    file.write_text(parts()["ConfigMap", "ildm"]["data"]["node.yaml"])
    return load_config(file)


def test_each_part_is_as_the_schema_of_kubernetes_wants_it() -> None:
    for part in parts().values():
        kubernetes_validate.validate(part, kubernetes_validate.latest_version(), strict=True)
    misspelt = {**parts()["Service", "ildm"], "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="specs"):
        kubernetes_validate.validate(misspelt, kubernetes_validate.latest_version(), strict=True)


def test_the_node_can_use_its_configuration(config: Config) -> None:
    assert config.node_id == "ildm-0"
    load_plugins(config)
    assert config.link.listen is not None
    assert config.link.listen.port == LINK_PORT
    assert [each.port for _, each in ((key, each.url) for key, each in config.clients_at)] == [CLIENT_PORT]


def test_the_name_that_dns_is_asked_for_is_the_headless_service_of_all_pods(config: Config) -> None:
    (question,) = config.link.discover
    service = parts()["Service", str(question.host)]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert [port["port"] for port in service["ports"]] == [question.port] == [LINK_PORT]
    stateful = parts()["StatefulSet", "ildm"]["spec"]
    assert stateful["serviceName"] == question.host
    labels = stateful["template"]["metadata"]["labels"]
    assert labels == stateful["selector"]["matchLabels"]
    for (kind, _), part in parts().items():
        if kind == "Service":
            assert part["spec"]["selector"] == labels


def test_what_is_mounted_is_there_and_what_the_node_needs_is_mounted(config: Config) -> None:
    volumes = {each["name"] for each in pod()["volumes"]}
    volumes |= {
        each["metadata"]["name"] for each in parts()["StatefulSet", "ildm"]["spec"]["volumeClaimTemplates"]
    }
    for each in pod()["containers"]:
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
    mounted = {mount["mountPath"] for mount in container("node")["volumeMounts"]}
    assert {"/etc/ildm", str(config.state_dir)} <= mounted
    assert config.link.secret_file is not None
    assert str(config.link.secret_file.parent) in mounted
    readme = (EXAMPLE.parent / "README.md").read_text()
    (secret,) = (each["secret"]["secretName"] for each in pod()["volumes"] if "secret" in each)
    assert f"kubectl create secret generic {secret} --from-literal={config.link.secret_file.name}=" in readme


def test_images_users_and_ports_are_those_of_the_testbed(config: Config) -> None:
    node, broker = container("node"), container("broker")
    testbed = services()
    assert node["image"] == testbed["node-mosquitto"]["image"]
    assert broker["image"] == testbed["mosquitto"]["image"]
    user = built_stage(testbed["node-mosquitto"]).last("USER").text.split(":")[0]
    assert str(node["securityContext"]["runAsUser"]) == user == str(pod()["securityContext"]["fsGroup"])
    assert {each["containerPort"] for each in node["ports"]} == {CLIENT_PORT, LINK_PORT}
    (address,) = config.broker.candidates
    assert (
        f"listener {address.port} {address.host}\n" in parts()["ConfigMap", "ildm"]["data"]["mosquitto.conf"]
    )
    assert broker["args"][-1].rpartition("/")[2] in parts()["ConfigMap", "ildm"]["data"]
