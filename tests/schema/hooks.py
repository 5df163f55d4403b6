"""What may be refused although the document allows it, each with its reason, and a count of the answers."""

import atexit
import collections
import itertools
import json
import os
import threading

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

# Codes that are about more than the request's own values, one by one.
NOT_IN_A_SCHEMA = {
    "invalid_receipt": "a receipt is signed: only one that was handed out is good",
    "invalid_page_token": "a token is good for the listing that made it",
    "client_request_id_conflict": "an id is taken by what was sent with it first",
    "mutually_exclusive": "two values contradict each other",
    "confirmation_required": "`confirm` repeats the name in the path",
    "precondition_failed": "If-Match names the version that is there",
    "key_required": "the queue's policy wants a key",
    "not_patchable": "the patch does not fit to what is there",
    "payload_too_large": "the queue's policy sets the size",
}
# Codes of values that a schema does describe: accepted only when the reason below holds.
LENGTHS = {"too_long", "out_of_range"}
OF_TWO = ("Nothing is between", "The message would expire before its delay is over")

lock, numbers = threading.Lock(), itertools.count()
statuses, accepted, refusals, operations = collections.Counter(), collections.Counter(), collections.Counter(), set()


def problem(response):
    try:
        return response.json()
    except ValueError:
        return {}


def reason(case, answer):
    """Why this request may be refused although every value is as its schema says; `None` when it may not."""
    errors = answer.get("errors") or [{"code": answer.get("code"), "pointer": ""}]
    reasons = [reason_of(case, error["code"], error["pointer"], error.get("detail", "")) for error in errors]
    return None if None in reasons else reasons[0]


def reason_of(case, code, pointer, detail):
    """Why this value may be refused."""
    body = case.body if isinstance(case.body, dict) else {}
    if code in NOT_IN_A_SCHEMA:
        return NOT_IN_A_SCHEMA[code]
    if code == "out_of_range" and detail.startswith(OF_TWO):
        return "two bounds leave nothing between them"
    if code in LENGTHS and not repr([case.body, case.query, case.headers]).isascii():
        return "lengths are in bytes, and a schema counts characters"
    if code == "reason_required" and (body.get("force") is True or body.get("dead_letters") is True):
        return "what goes against a rule needs a reason"
    if code == "missing_field" and pointer == "/message" and case.operation.label.startswith("PATCH"):
        return "one of three members must be there"
    return None


@schemathesis.hook
def before_call(context, case, kwargs):
    """Nine of ten good requests are made to agree with what a schema cannot say; the tenth stays as it is."""
    if case.meta is None or not case.meta.generation.mode.is_positive or next(numbers) % 10 == 0:
        return
    if isinstance(case.body, dict):
        if "client_request_id" in case.body:
            case.body["client_request_id"] = f"fresh-{next(numbers)}"
            (case.headers or {}).pop("Idempotency-Key", None)
        if "confirm" in case.body:
            case.body["confirm"] = case.path_parameters["queue"]
    for alternative in ("page_token", "key_prefix", "failure_kind"):
        (case.query or {}).pop(alternative, None)
    for precondition in ("If-Match", "If-None-Match"):
        (case.headers or {}).pop(precondition, None)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    answer, why = problem(response), None
    if isinstance(failure, RejectedPositiveData):
        why = reason(case, answer)
    elif isinstance(failure, AcceptedNegativeData):
        # The entries of a batch are refused one by one.
        if answer.get("rejected") or answer.get("failed"):
            why = "the entries of a batch are refused one by one"
    if why:
        with lock:
            accepted[why] += 1
    return why is None


@schemathesis.hook
def after_call(context, case, response):
    with lock:
        operations.add(case.operation.label)
        statuses[str(response.status_code)] += 1
        if response.status_code >= 400:
            good = case.meta is not None and case.meta.generation.mode.is_positive
            kind = "of the schema" if good else "against the schema"
            refusals[f"{case.operation.label}: {response.status_code} {problem(response).get('code')}, {kind}"] += 1


@atexit.register
def write():
    with open(os.environ["QUITA_COUNTED"], "w") as file:
        json.dump({"operations": len(operations), "statuses": statuses, "accepted": accepted, "refusals": refusals}, file)
