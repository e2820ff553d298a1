"""The manifests: as the published schemas have them, and naming only what the code knows."""

import ast
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.core import split_address
from trimtab.resize import read_pools
from trimtab.serve import HEALTH_PATH, check_names, read_file, settings_list

SOURCE = Path(__file__).resolve().parent.parent.parent / "src" / "trimtab"
CALLS = re.compile(r"(create|read|list|delete|patch|connect_get)_(?:namespaced_)?(\w+)")
VERBS = {"read": "get", "connect_get": "get"}
SUBRESOURCES = ("log", "exec", "resize")

Object = dict[str, Any]


@pytest.fixture(scope="module")
def objects(packaging: Path) -> list[Object]:
    folder = packaging / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    files = set(kustomization["resources"])
    assert files == {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    return [each for name in sorted(files) for each in yaml.safe_load_all((folder / name).read_text("utf-8"))]


def only(objects: list[Object], kind: str, name: str = "trimtab") -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def containers(objects: list[Object]) -> Iterator[tuple[Object, Object]]:
    """Pods with their containers."""
    for each in objects:
        if each["kind"] in ("Deployment", "DaemonSet"):
            pod = each["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield pod, container


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_the_schemas_take_every_object(objects: list[Object], version: str) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate==1.37.0")
    assert len(objects) > 10
    for each in objects:
        schema.validate(each, version, strict=True)


def test_kustomize_builds_the_same_objects(packaging: Path, objects: list[Object]) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, whose kustomize builds without a cluster")
    done = subprocess.run(
        ["kubectl", "kustomize", str(packaging / "kubernetes")],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "KUBECONFIG": "/dev/null", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))

    def names(listed: list[Object]) -> set[tuple[str, str, str]]:
        return {(e["kind"], e["metadata"].get("namespace", ""), e["metadata"]["name"]) for e in listed}

    assert names(built) == names(objects)
    images = {container["image"] for _, container in containers(built)}
    assert images == {"trimtab:0.1.0"}


def test_every_argument_is_one_the_command_accepts(
    objects: list[Object], accepts: Callable[[Sequence[str]], None]
) -> None:
    for _, container in containers(objects):
        accepts(container["args"])
        hook = container.get("lifecycle", {}).get("preStop")
        if hook:
            program, *words = hook["exec"]["command"]
            assert program == "trimtab"
            accepts(words)


def test_limits_are_restored_at_the_end_of_the_agents_pod_and_of_its_container(objects: list[Object]) -> None:
    agent, watcher = (container for _, container in containers([only(objects, "DaemonSet", "trimtab-agent")]))
    assert agent["lifecycle"]["preStop"]["exec"]["command"][1:] == ["agent", "restore", "--stop"]
    assert watcher["args"] == ["agent", "restore", "--watch"]
    for name in ("home", "groups"):
        mounts = [
            each["mountPath"]
            for container in (agent, watcher)
            for each in container["volumeMounts"]
            if each["name"] == name
        ]
        assert len(mounts) == 2
        assert len(set(mounts)) == 1
    homes = [
        each["value"]
        for container in (agent, watcher)
        for each in container["env"]
        if each["name"] == "TRIMTAB_HOME"
    ]
    assert len(homes) == 2
    assert len(set(homes)) == 1


def test_every_variable_is_one_the_code_knows(objects: list[Object]) -> None:
    known = {each.variable for each in settings_list()} | {"TRIMTAB_HOME", "TRIMTAB_CONFIG", "NODE_NAME"}
    for pod, container in containers(objects):
        assert {each["name"] for each in container["env"]} <= known
        assert pod["enableServiceLinks"] is False  # or a Service would make variables that look like ours


def test_the_settings_can_be_used_and_their_ports_are_open(objects: list[Object], tmp_path: Path) -> None:
    data = only(objects, "ConfigMap")["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = read_file(tmp_path / "trimtab.yaml").settings
    check_names(settings)
    _, container = next(containers([only(objects, "Deployment")]))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"https": split_address(settings.listen)[1]}
    paths = {"startupProbe": HEALTH_PATH, "readinessProbe": "/v1/ready", "livenessProbe": HEALTH_PATH}
    for probe, path in paths.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "https", "scheme": "HTTPS"}
    (service_port,) = only(objects, "Service")["spec"]["ports"]
    assert service_port["targetPort"] == "https"
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    for path in (settings.tls_certificate, settings.tls_key):
        assert mounted[str(Path(path).parent)] == "tls"
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["TRIMTAB_CONFIG"] in mounted
    assert environment["TRIMTAB_HOME"] in mounted


def test_the_agents_size_what_the_engine_starts(objects: list[Object], tmp_path: Path) -> None:
    data = only(objects, "ConfigMap")["data"]
    (tmp_path / "pools.yaml").write_text(data["pools.yaml"], encoding="utf-8")
    (pool,) = read_pools(tmp_path / "pools.yaml")
    namespace = yaml.safe_load(data["trimtab.yaml"])["engine"].removeprefix("kubernetes://")
    assert {each.namespace for each in pool.select} == {namespace}
    assert only(objects, "Namespace", namespace)
    _, container = next(containers([only(objects, "DaemonSet", "trimtab-agent")]))
    address = container["args"][container["args"].index("--metrics") + 1]
    assert [each["containerPort"] for each in container["ports"]] == [split_address(address)[1]]
    file = container["args"][container["args"].index("--pools") + 1]
    assert file in {each["mountPath"] for each in container["volumeMounts"]}


def asked(module: str, *definitions: str) -> set[tuple[str, str]]:
    """Resources and verbs for which a module, or some of its definitions, calls the official client."""
    found = set()
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    for part in tree.body:
        if definitions and getattr(part, "name", "") not in definitions:
            continue
        names = [node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)]
        for name in names:
            match = CALLS.fullmatch(name)
            if match is None:
                continue
            resource, _, part = match[2].removesuffix("_for_all_namespaces").partition("_")
            resource = f"{resource}s" + (f"/{part}" if part in SUBRESOURCES else "")
            found.add((resource, VERBS.get(match[1], match[1])))
    return found


def allowed(objects: list[Object], account: str) -> set[tuple[str, str]]:
    found = set()
    for binding in objects:
        if not binding["kind"].endswith("RoleBinding") or binding["subjects"][0]["name"] != account:
            continue
        role = only(objects, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        assert role["metadata"].get("namespace") == binding["metadata"].get("namespace")
        for rule in role["rules"]:
            found |= {(resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    return found


def test_accounts_may_do_what_the_code_asks_for_and_no_more(objects: list[Object]) -> None:
    resize = asked("resize/kubernetes.py", "resize_pod", "_patched")
    engine = asked("engines/kubernetes/cluster.py") | resize
    assert {("jobs", "create"), ("pods/resize", "patch"), ("pods/exec", "get"), ("nodes", "list")} <= engine
    followed = {("jobs", "watch"), ("pods/exec", "create")}
    assert allowed(objects, "trimtab") == engine | followed
    assert allowed(objects, "trimtab-agent") == asked("resize/kubernetes.py", "PodWatch") | {
        ("pods", "watch")
    }


def test_nobody_has_more_power_than_it_needs(objects: list[Object]) -> None:
    for _, container in containers(objects):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
    service = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert service["securityContext"]["runAsNonRoot"] is True
    assert not service.get("hostPID")


def test_the_secret_comes_without_a_value_and_two_replicas_survive_a_drain(objects: list[Object]) -> None:
    secret = only(objects, "Secret", "trimtab-store")
    assert not secret.get("data")
    assert not secret.get("stringData")
    deployment = only(objects, "Deployment")["spec"]
    assert deployment["replicas"] == 2
    budget = only(objects, "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == 1
    assert budget["selector"] == deployment["selector"]
    assert only(objects, "PersistentVolumeClaim", "trimtab-home")["spec"]["accessModes"] == ["ReadWriteMany"]
