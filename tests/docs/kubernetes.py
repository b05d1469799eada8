#!/usr/bin/env python3
"""docker/kubernetes.yml, without a cluster: `kubernetes.py SOURCE DAEMON`. Its names agree with each other and with the image, the
daemon takes its settings, and answers the probes. Without PyYAML it says so and succeeds."""
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ports import free_ports

try:
    import yaml
except ImportError:
    print("left out: there is no PyYAML (python3-yaml)")
    sys.exit(0)

SOURCE, DAEMON = sys.argv[1:3]
BYTES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def number(text):
    return int(re.match(r"\d+", text)[0]) * BYTES[re.sub(r"^\d+", "", text)]


objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(read("docker", "kubernetes.yml"))}
(_, stateful), = [item for item in objects.items() if item[0][0] == "StatefulSet"]
pod, image = stateful["spec"]["template"], read("docker", "Dockerfile")
container, = pod["spec"]["containers"]
volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
claims = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
ports = {port["name"]: port["containerPort"] for port in container["ports"]}
service = objects["Service", stateful["spec"]["serviceName"]]

# Names.
labels = pod["metadata"]["labels"]
assert stateful["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"], labels
assert all(ports[port["targetPort"]] == port["port"] for port in service["spec"]["ports"]), ports
assert stateful["spec"]["replicas"] == 1

# The image: its user, its volume, and the file of settings that it names.
uid = int(re.search(r"useradd --system --uid (\d+)", image)[1])
assert {pod["spec"]["securityContext"][field] for field in ("runAsUser", "runAsGroup", "fsGroup")} == {uid}
data = re.search(r"^VOLUME (\S+)$", image, re.MULTILINE)[1]
assert mounts[data] in claims, mounts
program, settings_file = re.search(r'^ENTRYPOINT \["(\S+)", "(\S+)"\]$', image, re.MULTILINE).groups()
directory, base = os.path.split(settings_file)
secret = objects["Secret", volumes[mounts[directory]]["secret"]["secretName"]]
conf = secret["stringData"][base]
settings = dict(line.split(" ", 1) for line in conf.splitlines())

# The settings.
assert settings["dir"] == data and int(settings["port"]) == ports["redis"] and int(settings["metrics-port"]) == ports["metrics"]
limit = number(container["resources"]["limits"]["memory"])
assert number(settings["maxmemory"]) < limit <= number(container["resources"]["requests"]["memory"]), "memory"
assert pod["spec"]["terminationGracePeriodSeconds"] > 60

# The daemon takes them and answers the probes.
PORTS = free_ports(11000, 11900)
here = {"port": next(PORTS), "metrics-port": next(PORTS)}
with tempfile.TemporaryDirectory() as directory:
    here["dir"] = os.path.join(directory, "data")
    text = "".join(f"{name} {here.get(name, value)}\n" for name, value in settings.items())
    checked = subprocess.run([DAEMON, "-", "--check-config"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert checked.returncode == 0, checked.stdout
    daemon = subprocess.Popen([DAEMON, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        daemon.stdin.write(text)
        daemon.stdin.close()
        for kind in ("livenessProbe", "readinessProbe"):
            probe = container[kind]["httpGet"]
            assert ports[probe["port"]] == ports["metrics"]
            deadline = time.monotonic() + 60
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{here['metrics-port']}{probe['path']}", timeout=30) as reply:
                        assert reply.status == 200
                    break
                except (urllib.error.URLError, ConnectionError) as error:
                    assert time.monotonic() < deadline and daemon.poll() is None, f"{kind}: {error}"
                    time.sleep(0.02)
    finally:
        daemon.terminate()
        ended = daemon.wait()
    assert ended == 0, ended
print("docker/kubernetes.yml agrees with the image and the daemon")
