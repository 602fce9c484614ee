"""Tokens of a local user pool for tests: real ones by signing in, and forged ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from mme_local import LocalCloud

ECHO = """
    import json
    def handler(event, context):
        shown = {"authorizer": event["requestContext"].get("authorizer"), "identity": event["requestContext"]["identity"].get("userArn")}
        return {"statusCode": 200, "body": json.dumps(shown)}
"""
"""A function that shows what API Gateway says of the caller."""
PASSWORD = "Correct-horse-7"


def call(bench: Any, url: str, token: str | None = None, header: str = "Authorization") -> httpx.Response:
    """Ask an API of the bench for ``/tenants/acme`` with a token, or without any."""
    headers = {} if token is None else {header: token}
    return httpx.get(bench.cloud.local_url(f"{url}/tenants/acme"), headers=headers, timeout=60)


def encoded(part: Any) -> str:
    """Base64url without padding, of JSON unless it is bytes."""
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = decoded(token.split(".")[1])
    return claims


def hs256(claims: dict[str, Any], secret: bytes, **header: Any) -> str:
    """A token signed with a secret."""
    signed = f"{encoded({'alg': 'HS256', **header})}.{encoded(claims)}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def rs256(claims: dict[str, Any], key: rsa.RSAPrivateKey, **header: Any) -> str:
    """A token signed with a private key."""
    signed = f"{encoded({'alg': 'RS256', **header})}.{encoded(claims)}"
    return f"{signed}.{encoded(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@dataclass
class UserPool:
    """A user pool of a local cloud with one app client; its own private key signs what Cognito would not."""

    cloud: LocalCloud
    id: str
    client_id: str

    @classmethod
    def create(cls, cloud: LocalCloud) -> UserPool:
        idp = cloud.client("cognito-idp")
        tenant = {"Name": "tenant", "AttributeDataType": "String", "Mutable": True}
        pool = idp.create_user_pool(PoolName=f"pool-{uuid.uuid4().hex[:8]}", Schema=[tenant])["UserPool"]["Id"]
        return cls(cloud, pool, cls.add_client(cloud, pool))

    @staticmethod
    def add_client(cloud: LocalCloud, pool: str) -> str:
        flows = ["ALLOW_USER_PASSWORD_AUTH", "ALLOW_REFRESH_TOKEN_AUTH"]
        created = cloud.client("cognito-idp").create_user_pool_client(
            UserPoolId=pool, ClientName="application", ExplicitAuthFlows=flows, WriteAttributes=["email"]
        )
        return str(created["UserPoolClient"]["ClientId"])

    @property
    def arn(self) -> str:
        return f"arn:aws:cognito-idp:{self.cloud.region}:{self.cloud.account}:userpool/{self.id}"

    @property
    def issuer(self) -> str:
        return f"https://cognito-idp.{self.cloud.region}.amazonaws.com/{self.id}"

    def add_user(self, name: str, *groups: str, **attributes: str) -> None:
        idp = self.cloud.client("cognito-idp")
        given = [{"Name": key.replace("custom_", "custom:"), "Value": value} for key, value in attributes.items()]
        idp.admin_create_user(UserPoolId=self.id, Username=name, UserAttributes=given, MessageAction="SUPPRESS")
        idp.admin_set_user_password(UserPoolId=self.id, Username=name, Password=PASSWORD, Permanent=True)
        for group in groups:
            with suppress(idp.exceptions.GroupExistsException):
                idp.create_group(UserPoolId=self.id, GroupName=group)
            idp.admin_add_user_to_group(UserPoolId=self.id, Username=name, GroupName=group)

    def sign_in(self, name: str, client_id: str = "") -> dict[str, str]:
        """``IdToken``, ``AccessToken``, ``RefreshToken``."""
        answer = self.cloud.client("cognito-idp").initiate_auth(
            AuthFlow="USER_PASSWORD_AUTH",
            ClientId=client_id or self.client_id,
            AuthParameters={"USERNAME": name, "PASSWORD": PASSWORD},
        )
        tokens: dict[str, str] = answer["AuthenticationResult"]
        return tokens

    @cached_property
    def private_key(self) -> rsa.RSAPrivateKey:
        """The key that the pool signs ID tokens with; there once somebody signed in."""
        path = Path(str(self.cloud._run)) / "state" / "cognito-pool-keys" / f"{self.id}-id.pem"
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return key

    def signed(self, token: str, **changes: Any) -> str:
        """A token like ``token`` with other claims (None: without that claim), signed with the pool's own key."""
        claims = {name: value for name, value in (claims_of(token) | changes).items() if value is not None}
        return rs256(claims, self.private_key, kid=decoded(token.partition(".")[0])["kid"])

    def forgeries(self, token: str) -> dict[str, str]:
        """Tokens like the ID token ``token`` that nobody may take, by what is wrong with them."""
        header, claims = decoded(token.partition(".")[0]), claims_of(token)
        kid, now = header["kid"], int(time.time())
        stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self.private_key.public_key()
        pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        first, _, signature = token.split(".")
        bare = {"alg": "none", "kid": kid}
        return {
            "expired": self.signed(token, exp=now - 1, iat=now - 3600),
            "without expiry": self.signed(token, exp=None),
            "not valid yet": self.signed(token, nbf=now + 600),
            "issued in the future": self.signed(token, iat=now + 600),
            "wrong issuer": self.signed(token, iss=f"{self.issuer}x"),
            "no issuer": self.signed(token, iss=None),
            "an issuer that only begins right": self.signed(token, iss=f"{self.issuer}/../other"),
            "wrong audience": self.signed(token, aud="another-client"),
            "no audience": self.signed(token, aud=None),
            "an access token": self.signed(token, token_use="access"),
            "without a use": self.signed(token, token_use=None),
            "alg none": f"{encoded(bare)}.{encoded(claims)}.",
            "alg none with the old signature": f"{encoded(bare)}.{encoded(claims)}.{signature}",
            "HS256 with the public key in PEM": hs256(claims, pem, kid=kid),
            "HS256 with the public key in DER": hs256(claims, der, kid=kid),
            "another algorithm's name": f"{encoded({'alg': 'RS512', 'kid': kid})}.{encoded(claims)}.{signature}",
            "tampered payload": f"{first}.{encoded(claims | {'custom:tenant': 'initech'})}.{signature}",
            "without a signature": f"{first}.{encoded(claims)}.",
            "two parts": f"{first}.{encoded(claims)}",
            "unknown kid": rs256(claims, stranger, kid="unknown"),
            "without a kid": rs256(claims, self.private_key),
            "another key under the pool's kid": rs256(claims, stranger, kid=kid),
            "a key of its own in the header": rs256(claims, stranger, kid=kid, jwk=_jwk(stranger), x5c=["AAAA"]),
            "a key's address in the header": rs256(claims, stranger, kid=kid, jku="http://127.0.0.1:9/jwks.json"),
            "claims that are a list": f"{first}.{encoded([claims])}.{signature}",
            "no JSON": f"{encoded(b'{')}.{encoded(b'{')}.{signature}",
            "no text": f"{encoded(bytes(range(128, 256)))}.{encoded(claims)}.{signature}",
            "nested without end": f"{first}.{encoded(b'[' * 4000)}.{signature}",
        }


def _jwk(key: rsa.RSAPrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "n": encoded(numbers.n.to_bytes(256, "big")), "e": encoded(numbers.e.to_bytes(3, "big"))}
