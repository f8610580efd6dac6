"""A campaign body and a policy as they are on the wire and on flash."""

import json

# Whoever changes these bytes changes the fingerprint of every campaign in the field.
FROZEN = (
    b'{"version":1,"campaign":"load","sensor":"energy","unit":"Wh","measure":"sum","offset":0,"bound":1000,'
    b'"slot_seconds":1800,"cycle":48,"epoch":1793491200,"last_slot":999999,"default":0,"cohort":{"seed":'
    b'"000102030405060708090a0b0c0d0e0f","share":1048576,"mechanism":{"kind":"square-wave","a":2,"b":1,"window":3,'
    b'"edges":[0,100,200,500,1000]}},"rule":{"kind":"scalar","mechanism":{"kind":"hybrid","coin":20000,'
    b'"rounding":[2,1],"piecewise":[2,1,3,2,16]},"ranges":[[0,0,300]]}}'
)
POLICY = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2, 1],
    "slot_seconds": 1800,
    "theta": [1, 1000],
    "duration_seconds": 86400,
}


def policy(**changes):
    fields = dict(POLICY)
    for name in changes:
        fields[name] = changes[name]
    return json.dumps(fields).encode()


# A stream campaign: one more field, and no cohort.
FROZEN_STREAM = (
    b'{"version":1,"campaign":"load","sensor":"energy","unit":"Wh","measure":"sum","offset":0,"bound":1000,'
    b'"slot_seconds":1800,"cycle":48,"epoch":1793491200,"last_slot":999999,"default":0,"cohort":null,"rule":{"kind":"stream",'
    b'"law":"gaussian","low":0,"theta":300,"levels":1000,"slew":50,"shift":8,"reuse":217,'
    b'"noise":[65000000,1000000000000],"dimension":1,"lag":1,"reports":48,"chains":2,"restart":0,"renewal":48}}'
)
STREAM_POLICY = {"rho": 40000, "period_seconds": 86400, "laws": ["gaussian", "one-bit"], "dimension": 1}
