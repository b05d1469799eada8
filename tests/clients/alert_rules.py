"""Each alert of conf/bloomery-alerts.yml by promtool's tests of rules: series that make it fire, when, and when not yet.

Conditions that no test daemon can show in a minute (a save of yesterday, a broken disk) have artificial series here.
"""
import json
import os
import subprocess

HOST = '{instance="host:9379",job="bloomery"}'
FILTER = '{db="0",filter="f",instance="host:9379",job="bloomery"}'

# name: (series and their values, one a minute; the first minute at which it fires)
CASES = {
    "BloomeryDown": ({"up" + HOST: "1 0 0 0"}, 2),
    "BloomeryNotReady": ({"bloomery_ready" + HOST: "1 0 0 0", "bloomery_loading" + HOST: "0 0 0 0"}, 2),
    "BloomeryLoadsForLong": ({"bloomery_loading" + HOST: "1x40"}, 30),
    "BloomeryLogNotWritable": ({"bloomery_log_writable" + HOST: "1 1 0 0"}, 2),
    "BloomerySaveFailed": ({"bloomery_save_last_ok" + HOST: "1 0x10"}, 6),
    "BloomerySaveTooOld": ({"bloomery_save_last_timestamp_seconds" + HOST: "0x200",
                            "bloomery_save_rule_seconds" + HOST: "3600x200"}, 186),
    "BloomeryQuarantined": ({"bloomery_filters_quarantined" + HOST: "0 0 1 1"}, 2),
    "BloomeryMemory": ({'bloomery_memory_bytes{instance="host:9379",job="bloomery",part="bits"}': "80 91x10",
                        'bloomery_memory_bytes{instance="host:9379",job="bloomery",part="log"}': "50x11",
                        "bloomery_memory_max_bytes" + HOST: "100x11"}, 6),
    "BloomeryClients": ({"bloomery_clients" + HOST: "90 91x10", "bloomery_clients_max" + HOST: "100x11"}, 6),
    "BloomeryAddsRefused": ({'bloomery_adds_refused_total{instance="host:9379",job="bloomery",reason="full"}': "0 0 5 9"}, 2),
    "BloomerySlowSync": ({"bloomery_log_last_sync_seconds" + HOST: "0.01 1.5x10"}, 6),
    "BloomeryCertificateEnds": ({"bloomery_tls_certificate_expires_seconds" + HOST: f"0 0 {14 * 86400 + 180}x8"}, 4),
    "BloomeryLoginsRefused": ({'bloomery_access_denied_total{instance="host:9379",job="bloomery",reason="auth"}':
                               "0 0 60 150 150"}, 3),
    "BloomeryFilterFillsUp": ({"bloomery_filter_fixed" + FILTER: "1x11", "bloomery_filter_items" + FILTER: "90 91x10",
                               "bloomery_filter_capacity_items" + FILTER: "100x11"}, 6),
    "BloomeryFilterRateAboveRequested": ({"bloomery_filter_error_rate" + FILTER: "0.0109 0.0111x10",
                                          "bloomery_filter_error_rate_requested" + FILTER: "0.01x11"}, 6),
    "BloomeryFilterManyLayers": ({"bloomery_filter_layers" + FILTER: "8 9x20"}, 16),
}

# Series with which an alert is silent until the end.
SILENT = {
    "BloomerySaveTooOld": [
        {"bloomery_save_last_timestamp_seconds" + HOST: "0x600", "bloomery_save_pending_changes" + HOST: "7x600",
         "bloomery_save_rule_seconds" + HOST: "0x600"},  # with `save ""`, or too few changes for its rules
        {"bloomery_save_last_timestamp_seconds" + HOST: "0x600", "bloomery_save_rule_seconds" + HOST: "86400x600"}],
}


def expanded(values):
    """promtool's "9x3" are four nines and more where they grow; here three, as one would read it."""
    words = []
    for word in values.split():
        value, _, times = word.partition("x")
        words += [value] * int(times or 1)
    return " ".join(words)


def test_of(name, series, expected):
    """`expected`: pairs of a minute and whether the alert fires then."""
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": expanded(values)} for key, values in series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}
            for minute, fires in expected],
    }


def check(conf, directory, names):
    """`names`: of the alerts in the file. Each has a case here, and fires at its minute, not before."""
    assert set(CASES) == set(names), set(CASES) ^ set(names)
    tests = [test_of(name, series, [(minute - 1, False), (minute, True)]) for name, (series, minute) in CASES.items()]
    tests += [test_of(name, series, [(590, False)]) for name, cases in SILENT.items() for series in cases]
    path = os.path.join(directory, "alert_rules.json")  # YAML takes JSON
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"rule_files": [os.path.abspath(conf) + "/bloomery-alerts.yml"], "evaluation_interval": "1m",
                   "tests": tests}, file)
    subprocess.run(["promtool", "test", "rules", path], check=True)
    print(f"ok: each of {len(CASES)} alerts fires when it should")
