#!/usr/bin/env python3
"""prometheus.py CONF: the alerts and the dashboard of conf/ with a real Prometheus that scrapes the daemon of with_daemon.py.

Every metric that they name exists; promtool accepts the rules, and alert_rules.py makes each of them fire; every
query of the dashboard has a result; an alert's query has one when its condition holds, and none before. Without
prometheus and promtool (Debian: prometheus) only the names are checked.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import redis

import alert_rules
from with_daemon import free_port

PATIENCE_S = 240
PORT, WEB_PORT = int(os.environ["BLOOMERY_PORT"]), int(os.environ["BLOOMERY_WEB_PORT"])
NAME = re.compile(r"\bbloomery_[a-z0-9_]+")
EXPRESSION = re.compile(r"^\s+expr: (.*)$", re.MULTILINE)
ALERT = re.compile(r"^\s+- alert: (\w+)\n(?:\s+#.*\n)?\s+expr: (.*)$", re.MULTILINE)


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
        return reply.read().decode()


def dashboard_queries(conf):
    with open(os.path.join(conf, "bloomery-dashboard.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def alert_queries(conf):
    with open(os.path.join(conf, "bloomery-alerts.yml"), encoding="utf-8") as file:
        text = file.read()
    alerts = dict(ALERT.findall(text))
    assert len(alerts) == text.count("- alert:") == len(EXPRESSION.findall(text)) > 10, sorted(alerts)
    return alerts


def check_names(conf):
    """Series and families of /metrics; a histogram's family has those that end in _bucket, _sum and _count."""
    metrics = get(f"http://127.0.0.1:{WEB_PORT}/metrics")
    known = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", metrics, re.MULTILINE):
        known.update([name + "_bucket", name + "_sum", name + "_count"] if kind == "histogram" else [name])
    used = 0
    for where, query in [*dashboard_queries(conf), *alert_queries(conf).items()]:
        for name in NAME.findall(query):
            assert name in known, f"{where}: {name} is not in /metrics"
            used += 1
    assert used > 50, used


class Prometheus:
    def __init__(self, conf, directory):
        self.url = f"http://127.0.0.1:{free_port()}"
        config = os.path.join(directory, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{os.path.abspath(conf)}/bloomery-alerts.yml"]
scrape_configs:
  - {{job_name: bloomery, static_configs: [{{targets: ["127.0.0.1:{WEB_PORT}"]}}]}}
""")
        self.log = open(os.path.join(directory, "log"), "w+b")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address={self.url[7:]}"], stdout=self.log, stderr=self.log)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)

    def query(self, expression):
        answer = json.loads(get(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def until(self, expression):
        """The result of a query once there is one."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                result = self.query(expression)
            except OSError as error:
                result = error  # it is starting
            if isinstance(result, list) and result:
                return result
            if time.monotonic() > end or self.process.poll() is not None:
                self.log.seek(0)
                sys.exit(f"no result of {expression}: {result}\n{self.log.read().decode()[-3000:]}")
            time.sleep(0.2)


def fill_in(query):
    return query.replace("$__rate_interval", "30s").replace("$instance", ".*").replace("$filter", ".*")


def check_dashboard(prometheus, conf):
    for title, query in dashboard_queries(conf):
        if "bloomery_memory_max_bytes" in query:
            continue  # only with maxmemory, as below
        prometheus.until(fill_in(query))
        print(f"ok: dashboard: {title}")


def check_alerts(prometheus, conf, client):
    alerts = alert_queries(conf)
    for name, query in alerts.items():
        until = time.monotonic() + PATIENCE_S
        while result := prometheus.query(query):  # on a busy machine a scrape or a sync may have taken a second
            assert time.monotonic() < until, f"{name} without a reason: {result}"
            client.execute_command("BF.ADD", "f", time.time())
            time.sleep(0.2)

    client.execute_command("BF.RESERVE", "small", "0.01", "100", "NONSCALING")
    for i in range(150):
        try:
            client.execute_command("BF.ADD", "small", f"item:{i}")
        except redis.ResponseError:
            pass  # it is full
    client.execute_command("CONFIG", "SET", "metrics-filters", "small", "maxclients", "1")
    assert prometheus.until(alerts["BloomeryFilterFillsUp"])[0]["metric"]["filter"] == "small"
    assert prometheus.until(alerts["BloomeryAddsRefused"])[0]["metric"]["reason"] == "full"
    prometheus.until(alerts["BloomeryClients"])
    client.execute_command("BF.RESERVE", "large", "0.01", "1000000")
    client.execute_command("CONFIG", "SET", "maxmemory", int(client.info("memory")["used_memory"] * 1.05), "maxclients", "10000")
    prometheus.until(alerts["BloomeryMemory"])
    print("ok: alerts: filling up, adds refused, clients, memory")


def main():
    conf = sys.argv[1]
    client = redis.Redis(port=PORT)
    client.execute_command("BF.ADD", "f", "x")
    client.execute_command("BF.EXISTS", "f", "x")
    check_names(conf)
    print("ok: every metric of conf/ exists")
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        print("skipped: there is no prometheus (Debian: prometheus)")
        return
    subprocess.run(["promtool", "check", "rules", os.path.join(conf, "bloomery-alerts.yml")], check=True)
    with tempfile.TemporaryDirectory() as directory:
        alert_rules.check(conf, directory, alert_queries(conf))
        prometheus = Prometheus(conf, directory)
        try:
            prometheus.until("bloomery_ready == 1")
            client.execute_command("BF.ADD", "f", "y")
            try:
                client.execute_command("NO.SUCH")
            except redis.ResponseError:
                pass
            check_dashboard(prometheus, conf)
            check_alerts(prometheus, conf, client)
        finally:
            prometheus.stop()


main()
