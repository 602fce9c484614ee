"""The onboarding API and the store behind its signed addresses, small and in memory: an `mme_cli.onboarding_client.Http`."""

from __future__ import annotations

import json
import threading
from collections import Counter
from threading import Event
from urllib.parse import parse_qs, urlsplit

from mme_cli.errors import NoAnswerError
from mme_cli.onboarding_client import OnboardingClient, Retries
from mme_cli.signed_http import Answer

FINDING = {"rule": "gzip", "member": "a/b", "detail": "is damaged", "fix": "pack it again"}


def answer(status, document=None, headers=None):
    kind = "application/json" if status < 300 else "application/problem+json"
    return Answer(status, {"content-type": kind, **(headers or {})}, json.dumps(document or {}, default=len).encode())


def problem(status, slug, **members):
    return answer(status, {"type": f"urn:mme:problem:{slug}", "status": status, "detail": f"because of {slug}", **members})


class Stop(Event):
    """An event whose waiting takes no time but is written down; counts as a clock."""

    def __init__(self):
        super().__init__()
        self.waits, self.now = [], 0.0

    def wait(self, timeout=None):
        self.waits.append(timeout)
        self.now += timeout
        return self.is_set()


class FakeApi:
    """Tenants' models, versions and uploads.

    Attributes:
        fates: what becomes of ``tenant/model`` after its upload, a state; ``active`` if it is not said.
        part_bytes: artifacts above it go in parts; ``None``: none does.
        trouble: answers, or errors, that calls get before anything is done, by the name of the call.
        lost: calls whose answer is lost once although they are done, by name.
        calls: how often each call was made.
        on_call: is told of every call.
    """

    def __init__(self, *, part_bytes=None):
        self.versions, self.uploads, self.fates = {}, {}, {}
        self.part_bytes, self.trouble, self.lost, self.calls, self.keys = part_bytes, {}, [], Counter(), []
        self.on_call = lambda _name: None
        self._lock = threading.RLock()

    def client(self, **options):
        return OnboardingClient(self, Retries(**{"stop": Stop(), "random": lambda: 0.0, **options}))

    def call(self, method, path, body=b"", headers=None):
        parts, query = urlsplit(path).path.strip("/").split("/"), parse_qs(urlsplit(path).query)
        name = {
            ("GET", 3): "models",
            ("GET", 4): "model",
            ("POST", 5): "register",
            ("GET", 5): "versions",
            ("GET", 6): "version",
            ("POST", 7): "complete",
            ("PUT", 2): "put_tenant",
            ("GET", 2): "tenant",
            ("DELETE", 2): "delete_tenant",
            ("PUT", 3): "put_api_key",
            ("DELETE", 3): "delete_api_key",
            ("DELETE", 4): "delete_model",
            ("DELETE", 6): "delete_version",
        }[method, len(parts)]
        if parts[-1] == "activate":
            name = "activate"
        self.keys.append((name, (headers or {}).get("idempotency-key")))
        return self._do(name, lambda: getattr(self, f"_{name}")(*parts[1::2], json.loads(body or b"{}"), query))

    def upload(self, method, url, body, headers):
        data = body if isinstance(body, bytes) else b"".join(iter(lambda: body.read(7), b""))
        return self._do("upload", lambda: self._upload(url, data))

    def _do(self, name, work):
        self.on_call(name)
        with self._lock:
            self.calls[name] += 1
            if self.trouble.get(name):
                given = self.trouble[name].pop(0)
                if isinstance(given, Exception):
                    raise given
                return given
            done = work()
            if name in self.lost:
                self.lost.remove(name)
                raise NoAnswerError(f"{name} got no answer")
            return done

    def _put_api_key(self, tenant, _body, _query):
        number = self.calls["delete_api_key"]
        return answer(201, {"tenant": tenant, "tier": "standard", "id": f"k{number}", "value": f"secret-{number}"})

    def _delete_api_key(self, tenant, _body, _query):
        return answer(200, {"tenant": tenant})

    def _register(self, tenant, model, body, _query):
        mine = self.versions.setdefault((tenant, model), [])
        for version in mine:
            if version["sha256"] == body["sha256"] and version["state"] not in ("rejected", "expired"):
                if version["state"] != "awaiting_upload":
                    return problem(409, "version-exists", field="sha256", value=version["version"])
                return answer(200, {**version, "upload": self._signed(tenant, model, version)})
        version = {
            "version": f"v{len(mine) + 1}-{body['sha256'][:12]}",
            "state": "awaiting_upload",
            "sha256": body["sha256"],
            "size_bytes": body["size_bytes"],
            "registration": body,
            "parts": {},
        }
        mine.append(version)
        return answer(201, {**version, "upload": self._signed(tenant, model, version)})

    def _signed(self, tenant, model, version):
        url, size = f"{tenant}/{model}/{version['version']}", version["size_bytes"]
        if version.get("joined"):
            return None
        if self.part_bytes is None or size <= self.part_bytes:
            return {"method": "PUT", "url": url, "headers": {}, "parts": []}
        parts = [
            {
                "number": number + 1,
                "offset": offset,
                "size_bytes": min(self.part_bytes, size - offset),
                "url": f"{url}/{number + 1}",
                "headers": {},
                "uploaded": number + 1 in version["parts"],
            }
            for number, offset in enumerate(range(0, size, self.part_bytes))
        ]
        return {"method": "PUT", "url": None, "headers": {}, "parts": parts}

    def _find(self, tenant, model, version):
        return next(one for one in self.versions[tenant, model] if one["version"] == version)

    def _upload(self, url, data):
        tenant, model, version, *part = url.split("/")
        record = self._find(tenant, model, version)
        if part:
            record["parts"][int(part[0])] = data
            return answer(200)
        if url in self.uploads:
            return Answer(412, {}, b"<Code>PreconditionFailed</Code>")
        self._arrived(url, record, data)
        return answer(200)

    def _arrived(self, url, record, data):
        assert len(data) == record["size_bytes"]
        self.uploads[url] = data
        tenant, model, _ = url.split("/")
        self.decide(record, self.fates.get(f"{tenant}/{model}", "active"), self.versions[tenant, model])

    def decide(self, record, fate, others):
        """Let a version come to its end; the newest active one has the route."""
        record["state"] = fate
        if fate == "rejected":
            record["reasons"] = [FINDING]
        if fate == "active":
            for other in others:
                if other is not record and other["state"] == "active":
                    other["state"] = "ready"

    def _complete(self, tenant, model, version, *_rest):
        record = self._find(tenant, model, version)
        if record.get("joined"):
            self._arrived(f"{tenant}/{model}/{version}", record, record["joined"])
        elif record["state"] == "awaiting_upload":
            wanted = -(-record["size_bytes"] // self.part_bytes)
            if len(record["parts"]) < wanted:
                return problem(409, "upload-incomplete")
            self._arrived(f"{tenant}/{model}/{version}", record, b"".join(record["parts"][number + 1] for number in range(wanted)))
        return answer(200, record)

    def _document(self, tenant, model):
        versions = self.versions[tenant, model]
        active = [version["version"] for version in versions if version["state"] == "active"]
        return {"tenant": tenant, "model": model, "active_version": active[-1] if active else None, "last_version": len(versions)}

    def _models(self, tenant, _body, query):
        after = query.get("cursor", [""])[0]
        names = sorted(model for owner, model in self.versions if owner == tenant and model > after)
        document = {"models": [self._document(tenant, model) for model in names[:3]]}
        return answer(200, document if len(names) <= 3 else {**document, "next": names[2]})

    def _model(self, tenant, model, *_rest):
        if (tenant, model) not in self.versions:
            return problem(404, "model-not-found")
        return answer(200, self._document(tenant, model))

    def _versions(self, tenant, model, *_rest):
        return answer(200, {"versions": self.versions[tenant, model][::-1]})

    def _version(self, tenant, model, version, *_rest):
        return answer(200, {"timings": {}, "reasons": [], **self._find(tenant, model, version)})

    def _activate(self, tenant, model, body, _query):
        return answer(200, {**self._document(tenant, model), "asked": body})

    def _put_tenant(self, tenant, body, _query):
        return answer(201, {"tenant": tenant, **body})

    def _tenant(self, tenant, *_rest):
        return answer(200, {"tenant": tenant})

    def _delete_tenant(self, tenant, *_rest):
        return answer(200, {"tenant": tenant})

    def _delete_model(self, tenant, model, *_rest):
        return answer(200, {"model": model})

    def _delete_version(self, tenant, model, version, _body, query):
        return answer(200, {"version": version, "force": query.get("force")})
