#!/usr/bin/env python3
"""docker/chart, without a cluster: `chart.py SOURCE DAEMON`. helm renders it, or where there is none chart.go. Its names agree with
each other and with the image; the daemon takes its settings with a password and with TLS, and answers the probes. Without PyYAML and
helm or Go it says so and succeeds."""
import copy
import glob
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import redis

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from ports import free_ports

try:
    import yaml
except ImportError:
    print("left out: there is no PyYAML (python3-yaml)")
    sys.exit(0)

SOURCE, DAEMON = map(os.path.abspath, sys.argv[1:3])
CHART = os.path.join(SOURCE, "docker", "chart")
BYTES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
PASSWORD = 'a "quoted" \\ one'
PORTS = free_ports(11000, 11900)


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def number(text):
    return int(re.match(r"\d+", text)[0]) * BYTES[re.sub(r"^\d+", "", text)]


def render(directory, changes):
    """The objects by kind, or what the renderer says when it refuses."""
    if shutil.which("helm"):
        path = os.path.join(directory, "values.yaml")
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(changes, file)
        command, data = ["helm", "template", "filters", CHART, "-f", path], None
    else:
        values = copy.deepcopy(yaml.safe_load(read("docker", "chart", "values.yaml")))
        for name, value in changes.items():
            values[name] = values[name] | value if isinstance(value, dict) else value
        command = [os.path.join(directory, "render"), *sorted(glob.glob(os.path.join(CHART, "templates", "*.yaml")))]
        data = json.dumps({"Values": values, "Release": {"Name": "filters"}})
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stderr if done.returncode else {one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one}


def agree(objects):
    """The names, the image, and the sizes; returns the container and its settings."""
    stateful, image = objects["StatefulSet"]["spec"], read("docker", "Dockerfile")
    pod, service = stateful["template"], objects["Service"]
    container, = pod["spec"]["containers"]
    labels, ports = pod["metadata"]["labels"], {port["name"]: port["containerPort"] for port in container["ports"]}
    assert stateful["serviceName"] == service["metadata"]["name"] and stateful["replicas"] == 1
    for selector in (stateful["selector"]["matchLabels"], service["spec"]["selector"]):
        assert selector == labels, labels
    for kind, name in (("NetworkPolicy", "podSelector"), ("PodDisruptionBudget", "selector"), ("ServiceMonitor", "selector")):
        assert kind not in objects or objects[kind]["spec"][name] == {"matchLabels": labels}, kind
    if "ServiceMonitor" in objects:
        job = re.search(r'up{job="(\w+)"}', read("conf", "bloomery-alerts.yml"))[1]
        assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["relabelings"] == [{"targetLabel": "job", "replacement": job}]
        assert service["metadata"]["labels"] == labels and objects["ServiceMonitor"]["spec"]["endpoints"][0]["port"] in ports
    if "NetworkPolicy" in objects:
        assert {rule["ports"][0]["port"] for rule in objects["NetworkPolicy"]["spec"]["ingress"]} == set(ports)
    assert all(ports[port["targetPort"]] == port["port"] for port in service["spec"]["ports"]), ports
    user = int(re.search(r"useradd --system --uid (\d+)", image)[1])
    assert {pod["spec"]["securityContext"][field] for field in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts[re.search(r"^VOLUME (\S+)$", image, re.MULTILINE)[1]] == stateful["volumeClaimTemplates"][0]["metadata"]["name"]
    sources = pod["spec"]["volumes"][0]["projected"]["sources"]
    assert sources[0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    settings = dict(line.split(" ", 1) for line in objects["ConfigMap"]["data"]["bloomery.conf"].splitlines())
    resources = container["resources"]
    assert number(settings["maxmemory"]) < number(resources["limits"]["memory"]) <= number(resources["requests"]["memory"]), "memory"
    assert int(settings["metrics-port"]) == ports["metrics"] and ports["redis"] in (int(settings["port"]), int(settings.get("tls-port", 0)))
    assert pod["spec"]["terminationGracePeriodSeconds"] > 60
    return container, sources


def serve(directory, objects, tls):
    """The command of the container, with its files and ports at other places: probes, a client with the password."""
    container, sources = agree(objects)
    files = os.path.join(directory, "tls" if tls else "plain")
    port, web = next(PORTS), next(PORTS)
    here = lambda text: re.sub(r"/data\b", f"{files}/data", text.replace("/etc/bloomery", files)).replace("6379", str(port)).replace("9379", str(web))
    written = dict(objects["ConfigMap"]["data"])
    certificates = os.path.join(directory, "certificates")
    for source in sources:
        for item in source.get("secret", {}).get("items", ()):
            theirs = {"tls.crt": "server.crt", "tls.key": "server.key", "ca.crt": "ca.crt"}.get(item["key"])
            written[item["path"]] = open(os.path.join(certificates, theirs), encoding="utf-8").read() if theirs else PASSWORD
    for name, text in written.items():
        path = os.path.join(files, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(here(text) if name.endswith(".conf") else text)
    program, option, script = container["command"]
    daemon = subprocess.Popen([program, option, here(script).replace("exec bloomeryd", f"exec '{DAEMON}'")], stdout=subprocess.DEVNULL)
    try:
        for kind in ("livenessProbe", "readinessProbe"):
            deadline = time.monotonic() + 60
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{web}{container[kind]['httpGet']['path']}", timeout=240) as reply:
                        assert reply.status == 200
                    break
                except (urllib.error.URLError, ConnectionError) as error:
                    assert time.monotonic() < deadline and daemon.poll() is None, f"{kind}: {error}"
                    time.sleep(0.02)
        options = {"ssl": True, "ssl_ca_certs": f"{certificates}/ca.crt", "ssl_certfile": f"{certificates}/client.crt",
                   "ssl_keyfile": f"{certificates}/client.key", "ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": False} if tls else {}
        assert redis.Redis(host="localhost", port=port, password=PASSWORD, **options).execute_command("BF.ADD", "a", "b") == 1
    finally:
        daemon.terminate()
        ended = daemon.wait()
    assert ended == 0, ended


def main():
    version = re.search(r"^project\(bloomery VERSION ([\d.]+)", read("CMakeLists.txt"), re.MULTILINE)[1]
    chart, values = (yaml.safe_load(read("docker", "chart", name)) for name in ("Chart.yaml", "values.yaml"))
    assert {chart["version"], chart["appVersion"], values["image"].split(":")[1]} == {version}, "the chart's version"
    with tempfile.TemporaryDirectory() as directory:
        if not shutil.which("helm"):
            if not shutil.which("go"):
                return print("left out: there is neither helm nor go")
            subprocess.run(["go", "build", "-o", os.path.join(directory, "render"), os.path.join(HERE, "chart.go")], check=True,
                           env=os.environ | {"GO111MODULE": "off", "CGO_ENABLED": "0", "GOCACHE": os.path.join(directory, "cache")})
        subprocess.run([os.path.join(HERE, "..", "support", "certificates"), os.path.join(directory, "certificates")], check=True)
        refused = render(directory, {})
        assert "auth.existingSecret" in refused, refused
        secret = {"auth": {"existingSecret": "a-password"}}
        plain = render(directory, secret)
        assert set(plain) == {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}, plain
        serve(directory, plain, False)
        checksum = lambda objects: objects["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
        for value, replaced in (({"settings": "hz 10"}, True), ({"maxmemory": "2gb"}, True), ({"tls": {"existingSecret": "a"}}, True), ({"storage": {"size": "9Gi"}}, False)):
            assert (checksum(render(directory, secret | value)) != checksum(plain)) == replaced, value
        full = render(directory, secret | {"tls": {"existingSecret": "a-certificate", "clientCertificates": True}, "storage": {"class": "fast"},
                                           "podDisruptionBudget": {"enabled": True}, "serviceMonitor": {"enabled": True}})
        assert set(full) - set(plain) == {"PodDisruptionBudget", "ServiceMonitor"}, full
        assert full["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
        serve(directory, full, True)
        if not shutil.which("helm"):  # which shows the notes of an installation alone
            values = yaml.safe_load(read("docker", "chart", "values.yaml"))
            notes = subprocess.run([os.path.join(directory, "render"), os.path.join(CHART, "templates", "NOTES.txt")], check=True, text=True,
                                   input=json.dumps({"Values": values, "Release": {"Name": "filters"}}), stdout=subprocess.PIPE).stdout
            assert "filters:6379" in notes and '{"matchLabels":{"bloomery-client":"true"}}' in notes, notes
    print("docker/chart agrees with the image and the daemon")


main()
