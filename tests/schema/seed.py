"""Something of everything, through the HTTP API: queues with policies, messages in every state, decisions, keys.

What was made is written down for schemathesis as dictionaries, so that generated requests name things that are there.
"""

import base64
import hashlib
import hmac
import json
import time
import urllib.request

QUEUES = {
    "orders": {},
    "mail-eu": {"max_attempts": 2, "backoff": {"type": "fixed", "base_seconds": 0, "jitter": "none"}},
    "unique": {"unique_key": True, "late_ack": "strict"},
    "calm": {"backoff": {"type": "schedule", "schedule_seconds": [300, 3600]}, "max_depth": 100_000, "delay_seconds": 60},
    "paused": {"max_releases": 5, "dead_letter_retention_seconds": 86_400},
}
SECRET = "a secret of at least thirty-two bytes"
# The generated requests use a token: every key that there is may be rotated and revoked by them, a token by nobody.
ISSUER = f"""
[[issuer]]
name = "schema"
iss = "https://schema.example/"
audience = ["quita"]
algorithms = ["HS256"]
secret = "{SECRET}"
ceiling = ["admin"]
"""


def token():
    """A token that may everything, for as long as a token may live."""
    now = int(time.time())
    claims = {"iss": "https://schema.example/", "aud": "quita", "sub": "runner", "iat": now, "exp": now + 43_200, "scope": "admin"}
    text = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return text + "." + _base64url(hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256))


def _base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Filler:
    """Makes things, and remembers what they are called."""

    def __init__(self, url, key):
        self.url, self.key = url, key
        self.names = {name: [] for name in ["messages", "dead", "discarded", "receipts", "selections", "redrives", "keys"]}

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def post(self, path, body):
        return self.call("POST", path, body)

    def publish(self, queue, count, **fields):
        messages = [{"message": {"order": n}, **fields} for n in range(count)]
        results = self.post("/v1/queue/publish-batch", {"queue": queue, "messages": messages})["results"]
        return [result["message_id"] for result in results]

    def receive(self, queue, count):
        body = {"queue": queue, "max_messages": count, "visibility_timeout_seconds": 43_200, "worker": "seed"}
        return self.post("/v1/queue/receive", body)["messages"]

    def die(self, queue, count, code):
        """Dead letters of a permanent failure."""
        for _ in range(count):
            self.publish(queue, 1)
        error = {"code": code, "detail": "no answer after 3021 ms"}
        settlements = [
            {"receipt": m["receipt"], "action": "nack", "permanent": True, "error": error} for m in self.receive(queue, count)
        ]
        results = self.post("/v1/queue/settle", {"settlements": settlements})["results"]
        return [result["message_id"] for result in results]

    def everything(self):
        for name, policy in QUEUES.items():
            self.call("PUT", f"/v1/queues/{name}", policy)
        for queue in ["orders", "mail-eu"]:
            self.bury(queue)
        for queue in ["orders", "calm"]:
            self.names["messages"] += self.publish(queue, 40, delay_seconds=600_000)
        for number in range(20):
            body = {"queue": "unique", "message": number, "key": f"order-{number}", "client_request_id": f"unique-{number}"}
            self.names["messages"].append(self.post("/v1/queue/publish", body)["message_id"])
        for queue in ["orders", "mail-eu", "unique"]:
            if queue != "unique":
                self.publish(queue, 100)
            self.names["receipts"] += [m["receipt"] for m in self.receive(queue, 100)]
        for queue in ["orders", "mail-eu", "paused"]:
            self.names["messages"] += self.publish(queue, 60, headers={"trace": "seed"})
        self.post("/v1/queues/paused/pause", {})
        self.decide()
        for number in range(20):
            self.names["keys"].append(self.post("/v1/keys", {"scopes": ["publish:mail-*"], "description": f"seed {number}"})["key_id"])

    def bury(self, queue):
        self.names["dead"] += self.die(queue, 60, "gateway_timeout")
        for message in self.die(queue, 10, "E1"):
            path = f"/v1/queues/{queue}/dead-letters/{message}/discard"
            self.post(path, {"code": "duplicate", "justification": "sent twice by the import"})
            self.names["discarded"].append(message)
        for message in self.names["dead"][-5:]:
            path = f"/v1/queues/{queue}/dead-letters/{message}"
            self.call("PATCH", path, {"merge_patch": {"order": 7}, "reason": "wrong number"})

    def decide(self):
        for number in range(12):
            queue = ["orders", "mail-eu"][number % 2]
            selection = self.post("/v1/dead-letters/selections", {"queue": queue, "filter": {"failure_kind": "permanent"}})
            self.names["selections"].append(selection["selection_id"])
            body = {"selection_id": selection["selection_id"], "expected_count": selection["count"]}
            body |= {"rate_per_second": 0.001, "canary": None} if number < 8 else {"dry_run": True}
            self.names["redrives"].append(self.post("/v1/redrives", body)["redrive_id"])


def fill(url, key, folder):
    """Fills a server, and writes the dictionaries."""
    filler = Filler(url, key)
    filler.everything()
    names = filler.names
    dictionaries = names | {"queues": list(QUEUES), "messages": names["messages"] + names["dead"] + names["discarded"]}
    for name, values in dictionaries.items():
        (folder / f"{name}.dict").write_text("".join(f'"{value}"\n' for value in values))
