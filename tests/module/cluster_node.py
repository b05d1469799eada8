#!/usr/bin/env python3
"""examples/parts.mjs in a cluster of six, beside examples/parts.py: both have the same parts and
put each item into the same part; the rate holds."""
import os
import subprocess
import sys

from cluster import SOURCE, Executing
from clusters import Cluster
from engines import items, run

HERE = os.path.dirname(os.path.abspath(__file__))


def test_one_filter_over_many_nodes_in_javascript():
    from parts import Parts
    for package in ("redis-5", "redis-6"):
        cluster = Cluster()
        path = os.path.abspath(os.path.join(SOURCE, "examples", "parts.mjs"))
        done = subprocess.run(["node", os.path.join(HERE, "parts_session.mjs"), package, path, str(cluster.nodes[0].port)],
                              capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"      {package}: {done.stdout.strip()}")
        parts = Parts(Executing(cluster), "whole", 16)
        names = items("item-", 100000)
        for i in range(0, len(names), 5000):
            assert parts.exists(names[i:i + 5000]) == [1] * 5000
        assert sum(parts.add(names[:5000])) == 0


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
