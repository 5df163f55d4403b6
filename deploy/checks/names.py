"""Whether dashboard, rules and manifests speak of metrics that exist, and whether every alert has its runbook.

With files of what `GET /metrics` answered (`names.py ANSWER...`, of all stores together), also whether docs/METRICS.md and the
servers agree.
"""

import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\b(?:quita|process)_[a-z0-9_]+\b")
SUFFIXES = ("_bucket", "_sum", "_count")
problems = []


def documented():
    """Names and types as the tables of docs/METRICS.md have them."""
    names = {}
    for line in (ROOT / "docs/METRICS.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 5 or "`" not in cells[1]:
            continue
        for name in re.findall(r"`((?:quita|process)_[a-z_]+)`", cells[1]):
            kind = re.match(r"counter|gauge|histogram", cells[2])
            if kind:
                names[name] = kind.group()
            else:
                # The table of what a process changed: its second column has the labels, and all are counters.
                names.setdefault(name, "counter")
    return names


def family(name, known):
    """The documented name that a series belongs to."""
    for suffix in SUFFIXES:
        base = name.removesuffix(suffix)
        if base != name and known.get(base) == "histogram":
            return base
    return name if name in known and known[name] != "histogram" else None


def uses():
    """Every query: where it stands, its text."""
    for dashboard in sorted((ROOT / "deploy/grafana").glob("*.json")):
        content = json.loads(dashboard.read_text())
        for panel in content["panels"]:
            for target in panel.get("targets", []):
                yield f"{dashboard.name}: {panel['title']}", target["expr"]
        for variable in content["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{dashboard.name}: ${variable['name']}", variable["definition"]
        for note in content["annotations"]["list"]:
            yield f"{dashboard.name}: {note['name']}", note["expr"]
    for rule in rules():
        yield f"rule {rule['alert']}", rule["expr"]
    for example in sorted((ROOT / "k8s/examples").glob("*.yaml")):
        for document in yaml.safe_load_all(example.read_text()):
            for trigger in document["spec"].get("triggers", []):
                yield example.name, trigger["metadata"]["query"]


def rules():
    content = yaml.safe_load((ROOT / "deploy/prometheus/quita.rules.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def check_layout():
    """What a Grafana that imports a dashboard would stumble over."""
    for path in sorted((ROOT / "deploy/grafana").glob("*.json")):
        dashboard = json.loads(path.read_text())
        ids = [panel["id"] for panel in dashboard["panels"]]
        if len(ids) != len(set(ids)):
            problems.append(f"{path.name}: panels share an id")
        if "__inputs" in dashboard or dashboard.get("id") is not None:
            problems.append(f"{path.name}: it is bound to the Grafana that it came from")
        taken = {}
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            if place["x"] + place["w"] > 24:
                problems.append(f"{path.name}: {panel['title']} does not fit")
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    if taken.setdefault((x, y), panel["id"]) != panel["id"]:
                        problems.append(f"{path.name}: {panel['title']} lies over another panel")
                        taken[(x, y)] = panel["id"]
            sources = [panel.get("datasource")] + [t["datasource"] for t in panel.get("targets", [])]
            if panel["type"] != "row" and any(s["uid"] != "${datasource}" for s in sources):
                problems.append(f"{path.name}: {panel['title']} names a data source of its own")


def check_runbooks():
    tests = (ROOT / "deploy/prometheus/quita.rules.test.yml").read_text()
    linked = set()
    for rule in rules():
        name, link = rule["alert"], rule["annotations"].get("runbook_url", "")
        page, _, anchor = link.partition("#")
        path = ROOT / page
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M) if page and path.is_file() else []
        if anchor not in [re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings]:
            problems.append(f"{name}: no runbook at {link or '(nothing)'}")
        linked.add(anchor)
        if rule["labels"].get("severity") not in ("critical", "warning"):
            problems.append(f"{name}: no severity")
    for heading in re.findall(r"^## (Quita\w+)$", (ROOT / "docs/operating/runbooks.md").read_text(), re.M):
        if heading.lower() not in linked:
            problems.append(f"runbook {heading}: no such alert")
    for word in re.findall(r"Quita[A-Z]\w+", tests):
        if not any(rule["alert"].startswith(word) for rule in rules()):
            problems.append(f"the rules' test names {word}: no such alert")


def check_answers(answers, known):
    types = {}
    for answer in answers:
        types |= dict(re.findall(r"^# TYPE (\S+) (\w+)$", Path(answer).read_text(), re.M))
    for name, kind in sorted(types.items()):
        if known.get(name) != kind:
            problems.append(f"{name} is a {kind} of the server and {known.get(name, 'nothing')} in docs/METRICS.md")
    for name in sorted(known.keys() - types.keys()):
        problems.append(f"{name} is in docs/METRICS.md and no server has it")


def main():
    known = documented()
    queries = list(uses())
    for where, query in queries:
        for name in set(NAME.findall(query)):
            if family(name, known) is None:
                problems.append(f"{where}: {name} is not in docs/METRICS.md")
    check_layout()
    check_runbooks()
    if sys.argv[1:]:
        check_answers(sys.argv[1:], known)
    # For promtool: every query as a rule, with Grafana's variables filled in.
    expressions = [re.sub(r"^label_values\((.*),.*\)$", r"\1", query) for _, query in queries]
    filled = [e.replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$instance", ".*") for e in expressions]
    recorded = [{"record": f"check:{n}", "expr": e} for n, e in enumerate(filled)]
    Path(ROOT / "target").mkdir(exist_ok=True)
    (ROOT / "target/queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "check", "rules": recorded}]}))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"   {len(known)} documented metrics, {len(queries)} queries, {len(rules())} alerts, {len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
