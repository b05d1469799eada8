#!/usr/bin/env python3
"""threats.py SOURCE BUILD: the tests that docs/THREATS.md and docs/TESTING.md name exist, and each section of the former names one.
No test may run for ever."""
import json
import os
import re
import subprocess
import sys

source, build = sys.argv[1:]
listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, text=True, check=True).stdout
tests = {test["name"]: {item["name"] for item in test.get("properties", [])} for test in json.loads(listing)["tests"]}
families = {name.split("_")[0] for name in tests}
wrong = [f"the test {name} has no TIMEOUT" for name, properties in tests.items() if "TIMEOUT" not in properties]


def look(page, names):
    """Where a build lacks a family, as without Node.js, its tests cannot be checked. A name that ends in _ is a family's."""
    for name in names:
        if name.split("_")[0] in families and not any(test == name or name.endswith("_") and test.startswith(name) for test in tests):
            wrong.append(f"{page} names the test {name}, which does not exist")


def text(page):
    with open(os.path.join(source, "docs", page), encoding="utf-8") as file:
        return file.read()


for section in text("THREATS.md").split("\n## ")[1:]:
    named = [name for group in re.findall(r"\[((?:\w+_\w+(?:,\s+)?)+)\](?!\()", section) for name in re.split(r",\s+", group)]
    look("THREATS.md", named)
    if not named and not section.startswith("Supply chain"):
        wrong.append(f"THREATS.md: no test in the section {section.splitlines()[0]}")
look("TESTING.md", re.findall(r"`([a-z]\w*_\w*)`", text("TESTING.md")))
for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
