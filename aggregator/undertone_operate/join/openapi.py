"""OpenAPI description of the HTTP API at which people join."""

from typing import Any

from undertone_aggregator.web.application import openapi

PATH = "/api/join/openapi.json"
# The private authority that issued the listener's certificate.
AUTHORITY_PATH = "/api/join/ca.crt"
_TEXT = {"type": "string"}
_OR_NULL = {"type": ["string", "null"]}
_OFFER = {
    "operator": _TEXT,
    "campaign": _TEXT,
    "about": _OR_NULL,
    # What the device would store, as JSON. Every number and sentence that a person reads is computed from this policy.
    "policy": {"type": "object"},
    "credentials": {"enum": ["password", "certificate"], "type": "string"},
    "websocket": _OR_NULL,
    "code_expires": _TEXT,
}
_REPLY = {
    "device": _TEXT,
    "files": {},
    "addresses": {"mqtt": _TEXT, "websocket": _OR_NULL},
}
_REFUSALS = {
    "404": "reason unknown: there is no such code",
    "409": "reason used: the code was redeemed before; redeem refuses its own key only after 30 days",
    "410": "reason expired: the time of the code or its campaign is over; reason revoked: the code, its campaign or its"
    " device was revoked, or (leave) no device has joined with the code",
    "422": "reason invalid: the body is not as expected; error says why",
    "429": "reason slow_down: too many requests; Retry-After is in seconds",
    "503": "reason unavailable: the server cannot answer now; repeat the same request later",
}


def document() -> dict[str, Any]:
    """Return the description as a JSON value."""
    code = {"code": _TEXT}
    key = {"key": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}}
    return openapi(
        "Undertone: join by a code",
        'Refusals are {"reason": word, "error": sentence}.',
        {
            "/api/join/offer": _post("what a person reads before joining; changes nothing", code, _OFFER),
            "/api/join/redeem": _post(
                "redeem the code and get a device's files; the same key gets the same reply again", code | key, _REPLY
            ),
            "/api/join/leave": _post(
                "revoke the device that joined with this code and key; a second call changes nothing",
                code | key,
                {"device": _TEXT},
            ),
            AUTHORITY_PATH: {
                "get": {
                    "summary": "the authority's certificate (PEM); the SHA-256 of its DER form is in the link",
                    "responses": {
                        "200": {"description": "the certificate", "content": {"application/x-pem-file": {}}},
                        "404": {"description": "no authority of this server has issued the listener's certificate"},
                    },
                }
            },
        },
    )


def _post(summary: str, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": {"description": summary, "content": _json(answer)}}
    responses |= {status: {"description": reason} for status, reason in _REFUSALS.items()}
    return {
        "post": {"summary": summary, "requestBody": {"required": True, "content": _json(body)}, "responses": responses}
    }


def _json(fields: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": _object(fields)}}


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object. A field is a schema, or a table of fields; an empty table means any texts."""
    properties = {name: field if "type" in field else _object(field) for name, field in fields.items()}
    if not properties:
        return {"type": "object", "additionalProperties": _TEXT}
    return {"type": "object", "properties": properties, "required": list(properties)}
