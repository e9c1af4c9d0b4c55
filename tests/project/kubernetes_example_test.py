#!/usr/bin/env python3
"""kubernetes_example_test.py FILE: checks docs/examples/kubernetes-group.yaml against the schema of
Kubernetes 1.31, and what docs/distributed.md says of it. Needs kubernetes-validate (PyPI); skipped without it."""
import sys

try:
    import kubernetes_validate
    import yaml
except ModuleNotFoundError as missing:
    print(f"SKIP: no module {missing.name}")
    sys.exit(77)

SCHEMA = "1.31"
# ExitCode: usage, data, configuration, no progress.
FINAL_EXIT_CODES = [64, 65, 78, 93]

with open(sys.argv[1], encoding="utf-8") as file:
    documents = list(yaml.safe_load_all(file))
for document in documents:
    kubernetes_validate.validate(document, SCHEMA, strict=True)
service, job = documents
spec = job["spec"]
pod = spec["template"]["spec"]
container = pod["containers"][0]
variables = {variable["name"]: variable.get("value") for variable in container["env"]}

assert (service["kind"], job["kind"]) == ("Service", "Job")
assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
assert service["metadata"]["name"] == pod["subdomain"]
assert spec["completionMode"] == "Indexed"
assert str(spec["completions"]) == str(spec["parallelism"]) == variables["WORLD_SIZE"]
assert variables["MASTER_ADDR"] == f'{job["metadata"]["name"]}-0.{pod["subdomain"]}'
rules = spec["podFailurePolicy"]["rules"]
assert rules[0]["action"] == "FailJob" and rules[0]["onExitCodes"]["values"] == FINAL_EXIT_CODES
assert rules[0]["onExitCodes"]["containerName"] == container["name"]
# The checkpoint must be complete before the kernel's SIGKILL.
deadline = next(a for a in container["args"] if a.startswith("--set=distributed.stop_deadline_seconds="))
assert float(deadline.rpartition("=")[2]) < pod["terminationGracePeriodSeconds"]
# A field that does not exist, or of another type, is noticed.
for key, wrong in (("completionsMode", "Indexed"), ("completions", "two")):
    try:
        kubernetes_validate.validate({**job, "spec": {**spec, key: wrong}}, SCHEMA, strict=True)
    except kubernetes_validate.ValidationError:
        continue
    sys.exit(f"{key}: {wrong} was accepted")
