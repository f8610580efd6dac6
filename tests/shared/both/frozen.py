"""The body of a campaign and a policy, as they are on the wire and in flash."""

import json

# Whoever changes these bytes changes the fingerprint of every campaign in the field.
FROZEN = (
    b'{"bound":1000,"campaign":"load","cohort":{"a":2,"b":1,"edges":[0,100,200,500,1000],"kind":"square-wave",'
    b'"window":3},"cycle":48,"default":0,"epoch":1793491200,"last_slot":999999,"measure":"sum","offset":0,'
    b'"rule":{"kind":"scalar","mechanism":{"coin":20000,"kind":"hybrid","piecewise":[2,1,3,2,16],"rounding":[2,1]},'
    b'"ranges":[[0,0,300]]},"schedule":{"cohort_stride":19,"seed":"000102030405060708090a0b0c0d0e0f","stride":1},'
    b'"sensor":"energy","slot_seconds":1800,"unit":"Wh","version":2}'
)
POLICY = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2, 1],
    "slot_seconds": 1800,
    "theta": [1, 1000],
    "duration_seconds": 86400,
    "insecure": True,
}


def policy(**changes):
    fields = dict(POLICY)
    for name in changes:
        fields[name] = changes[name]
    return json.dumps(fields).encode()


# A stream campaign has no cohort.
FROZEN_STREAM = (
    b'{"bound":1000,"campaign":"load","cohort":null,"cycle":48,"default":0,"epoch":1793491200,"last_slot":999999,'
    b'"measure":"sum","offset":0,"rule":{"chains":2,"dimension":1,"kind":"stream","lag":1,"law":"gaussian",'
    b'"levels":1000,"low":0,"noise":[65000000,1000000000000],"renewal":48,"reports":48,"restart":0,"reuse":217,'
    b'"shift":8,"slew":50,"theta":300},"schedule":{"cohort_stride":0,"seed":"00000000000000000000000000000000",'
    b'"stride":1},"sensor":"energy","slot_seconds":1800,"unit":"Wh","version":2}'
)
STREAM_POLICY = {"rho": 40000, "period_seconds": 86400, "laws": ["gaussian", "one-bit"], "dimension": 1}
