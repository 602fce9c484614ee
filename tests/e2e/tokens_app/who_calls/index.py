"""A Lambda authorizer as a user would bring it: tokens of an issuer of their own, signed with a shared secret."""

import base64
import hashlib
import hmac
import json
import os
import time


def _decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _claims(token):
    head, payload, signature = token.split(".")
    wanted = hmac.digest(os.environ["SECRET"].encode(), f"{head}.{payload}".encode(), hashlib.sha256)
    if json.loads(_decoded(head))["alg"] != "HS256" or not hmac.compare_digest(wanted, _decoded(signature)):
        raise ValueError("not signed by us")
    claims = json.loads(_decoded(payload))
    if claims["exp"] <= time.time() or claims["iss"] != "https://login.example.com" or claims["aud"] != "tenant-api":
        raise ValueError("not for us")
    return claims


def handler(event, context):
    """Say who calls."""
    headers = {name.lower(): value for name, value in event["headers"].items()}
    try:
        claims = _claims(headers["authorization"].removeprefix("Bearer "))
    except (KeyError, TypeError, ValueError):
        raise Exception("Unauthorized") from None
    stage = "/".join(event["methodArn"].split("/")[:2])
    statement = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": f"{stage}/*"}
    told = {name: claims[name] for name in ("tenant", "role") if name in claims}
    return {"principalId": claims["sub"], "policyDocument": {"Version": "2012-10-17", "Statement": [statement]}, "context": told}
