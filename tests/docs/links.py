#!/usr/bin/env python3
"""links.py SOURCE: the links between the pages of the repository lead to files and headings that exist, docs/README.md leads
to every page of docs/, and numbered headings count from 1. A page of docs/ begins with whom it is for, and has at most 300 lines."""
import os
import re
import subprocess
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NUMBERED = re.compile(r"^## (\d+)\. ", re.MULTILINE)
PAGE_LINES = 300
LONG = ("docs/FORMAT.md", "docs/SETTINGS.md", "docs/COMMAND_LIST.md")  # looked up, not read
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(path):
    with open(path, encoding="utf-8") as file:
        text = FENCED.sub("", file.read())
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def main():
    os.chdir(sys.argv[1])
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split()
    pages = listed or [os.path.normpath(os.path.join(folder, name)) for top in (".", "docs") for folder, below, names in os.walk(top)
                       if top != "." or not below.clear() for name in names if name.endswith(".md")]  # a tarball
    wrong, led_to = [], set()
    for page in pages:
        with open(page, encoding="utf-8") as file:
            text = FENCED.sub("", file.read())
        numbers = [int(number) for number in NUMBERED.findall(text)]
        if numbers != list(range(1, len(numbers) + 1)):
            wrong.append(f"{page}: the sections are numbered {numbers}")
        for groups in LINK.findall(text):
            target = groups[0] or groups[1]
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
            if not os.path.exists(path):
                wrong.append(f"{page}: there is no {target}")
            elif anchor and path.endswith(".md") and anchor not in anchors(path):
                wrong.append(f"{page}: {path} has no heading '{anchor}'")
            if page == "docs/README.md":
                led_to.add(path)
    for page in pages:
        if re.fullmatch(r"docs/(?!README)\w+\.md", page):
            with open(page, encoding="utf-8") as file:
                lines = file.read().splitlines()
            if not lines[2].startswith("For "):
                wrong.append(f"{page}: its first sentence does not say whom it is for")
            if len(lines) > PAGE_LINES and page not in LONG:
                wrong.append(f"{page}: {len(lines)} lines, more than {PAGE_LINES}")
        if page.startswith("docs/") and page.count("/") == 1 and page not in led_to | {"docs/README.md"}:
            wrong.append(f"docs/README.md does not lead to {page}")
    print("\n".join(wrong) or f"{len(pages)} pages")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
