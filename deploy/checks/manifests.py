"""What no schema says of the manifests: who may do what, which probes ask whom, and that a stop has its time.

`manifests.py NAME=FILE...` with what `kubectl kustomize` made. Prints the custom resources as JSON for custom.mjs.
"""

import json
import sys

import yaml

BUILT_IN = ("v1", "apps/v1", "policy/v1", "networking.k8s.io/v1")
# `Server::stop`: twice a second for last words, five seconds for the last commits, five for closing the store.
AFTER_THE_DEADLINE = 12
problems = []


def need(holds, what):
    if not holds:
        problems.append(what)


def check_container(where, container):
    security = container.get("securityContext", {})
    need(security.get("allowPrivilegeEscalation") is False, f"{where}: it may gain privileges")
    need(security.get("capabilities", {}).get("drop") == ["ALL"], f"{where}: it keeps capabilities")
    need(security.get("readOnlyRootFilesystem") is True, f"{where}: its root can be written")
    need("memory" in container.get("resources", {}).get("limits", {}), f"{where}: no limit on memory")
    need(":" in container["image"] and not container["image"].endswith(":latest"), f"{where}: no version of the image")
    need("preStop" not in container.get("lifecycle", {}), f"{where}: a preStop hook")


def check_workload(overlay, workload, config):
    pod = workload["spec"]["template"]["spec"]
    security = pod.get("securityContext", {})
    need(security.get("runAsNonRoot") is True and security.get("runAsUser") == 65532, f"{overlay}: it may run as root")
    need(security.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{overlay}: no seccomp profile")
    need(pod.get("automountServiceAccountToken") is False, f"{overlay}: it gets a token of the cluster")
    need([c["args"] for c in pod["initContainers"]] == [["migrate"]], f"{overlay}: no step that migrates")
    for container in pod["initContainers"] + pod["containers"]:
        check_container(f"{overlay}/{container['name']}", container)
    server = pod["containers"][0]
    probes = {kind: server[kind + "Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    need(all(probe["port"] == "inner" for probe in probes.values()), f"{overlay}: a probe goes to callers' port")
    need(probes["liveness"]["path"] == "/healthz", f"{overlay}: the liveness probe asks the store")
    need(server["readinessProbe"]["failureThreshold"] >= 3, f"{overlay}: one slow answer takes a replica out")
    delay, deadline = (float(config[f"QUITA_DRAIN_{word}_SECONDS"]) for word in ("DELAY", "DEADLINE"))
    grace = pod["terminationGracePeriodSeconds"]
    needed = delay + deadline + AFTER_THE_DEADLINE
    need(delay >= 5 and grace > needed, f"{overlay}: a stop may take {needed} s and has {grace}")
    need(config["QUITA_AUTO_CREATE_QUEUES"] == "false", f"{overlay}: misspelt names make queues")
    mounts = {mount["mountPath"] for mount in server["volumeMounts"]}
    need(config["QUITA_DATA_DIR"] in mounts, f"{overlay}: the data folder is on no volume")
    labels = workload["spec"]["template"]["metadata"]["labels"].items()
    selected = workload["spec"]["selector"]["matchLabels"].items()
    need(selected and selected <= labels, f"{overlay}: the selector does not find the pods")
    return labels


def check(overlay, documents):
    by_kind = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    sqlite = "StatefulSet" in by_kind
    workload = (by_kind.get("StatefulSet", []) + by_kind.get("Deployment", []))[0]
    config = by_kind["ConfigMap"][0]["data"]
    labels = check_workload(overlay, workload, config)
    spec = workload["spec"]
    need(spec["replicas"] == (1 if sqlite else 3), f"{overlay}: {spec['replicas']} replicas")
    if not sqlite:
        spread = {c["topologyKey"] for c in spec["template"]["spec"]["topologySpreadConstraints"]}
        need(len(spread) == 2, f"{overlay}: replicas are not spread over nodes and zones")
    for service in by_kind["Service"]:
        need(service["spec"]["selector"].items() <= labels, f"{overlay}: {service['metadata']['name']} finds no pod")
    budget = by_kind["PodDisruptionBudget"][0]["spec"]
    need(budget["selector"]["matchLabels"].items() <= labels, f"{overlay}: the budget finds no pod")
    policies = by_kind["NetworkPolicy"]
    closed = [p for p in policies if p["spec"]["podSelector"] == {} and set(p["spec"]) == {"podSelector", "policyTypes"}]
    need([set(p["spec"]["policyTypes"]) for p in closed] == [{"Ingress", "Egress"}], f"{overlay}: what is not named may pass")
    inner = [s for s in by_kind["Service"] if by_kind["ServiceMonitor"][0]["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()]
    need(len(inner) == 1, f"{overlay}: the monitor finds {len(inner)} services")
    secrets = by_kind["Secret"][0]["data"]
    need(("QUITA_DATABASE_URL" in secrets) != sqlite and "QUITA_ADMIN_KEY" in secrets, f"{overlay}: wrong secrets")
    level = by_kind["Namespace"][0]["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
    need(level == "restricted", f"{overlay}: pod security is {level}")


custom = []
for argument in sys.argv[1:]:
    name, _, path = argument.partition("=")
    with open(path) as file:
        documents = [document for document in yaml.safe_load_all(file) if document]
    custom += [{"from": name, "object": d} for d in documents if d["apiVersion"] not in BUILT_IN]
    if not name.startswith("example"):
        check(name, documents)
for problem in problems:
    print(problem, file=sys.stderr)
json.dump(custom, sys.stdout)
sys.exit(1 if problems else 0)
