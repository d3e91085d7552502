"""The Dockerfile and the Kubernetes example: their syntax, and that the options, paths and names in
them exist.
"""

import json
import re
from pathlib import Path

import yaml

from tfk_transformer.apps.cli.commands.serve import API_KEY
from tfk_transformer.apps.server.middleware import OPEN

FOLDER = Path(__file__).parents[2] / "scripts" / "serving"


def test_dockerfile_runs_as_plain_user():
    text = (FOLDER / "Dockerfile").read_text()
    lines = [
        line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")
    ]
    steps = [line.split(maxsplit=1) for line in lines]
    assert {name for name, _ in steps} <= {
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    values = dict(steps)
    assert values["USER"] == "10001"
    # scripts/release puts these files next to the Dockerfile.
    assert values["COPY"].split() == ["tfk_transformer-*.whl", "constraints.txt", "/tmp/"]
    assert any("--constraint /tmp/constraints.txt" in line for line in lines)
    assert json.loads(values["ENTRYPOINT"])[:2] == ["tfk-transformer", "serve"]
    assert json.loads(values["CMD"]) == ["/model/translate.onnx"]
    program = json.loads(values["HEALTHCHECK"].partition("CMD ")[2])[2]
    compile(program, "HEALTHCHECK", "exec")
    assert re.search(r":8501(/v2/health/ready)", program)[1] in OPEN


def test_container_options_exist():
    from tfk_transformer.apps.cli.main import _imported

    known = {option for parameter in _imported("serve").params for option in parameter.opts}
    for name in ("Dockerfile", "kubernetes.yaml"):
        text = re.sub(
            r"(?m)^ *#.*|^.*(?:pip install|useradd|HEALTHCHECK).*$", "", (FOLDER / name).read_text()
        )
        assert set(re.findall(r'"(--[\w-]+)"', text)) <= known


def test_kubernetes_probes_need_no_key(server):
    deployment, service = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    pod = deployment["spec"]["template"]
    assert (
        pod["metadata"]["labels"]
        == deployment["spec"]["selector"]["matchLabels"]
        == service["spec"]["selector"]
    )
    (container,) = pod["spec"]["containers"]
    (port,), (outside,) = container["ports"], service["spec"]["ports"]
    assert outside["targetPort"] == port["name"]
    assert port["containerPort"] == 8501
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert path in OPEN
        assert server.send(path).status == 200
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert [variable["name"] for variable in container["env"]] == [API_KEY]
    options = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    assert pod["spec"]["terminationGracePeriodSeconds"] > float(options["--drain-delay"]) + float(
        options["--timeout"]
    )
    assert float(options["--drain-delay"]) >= container["readinessProbe"]["periodSeconds"]
