"""A client of the Open Inference Protocol, NVIDIA's, in a process of its own: what it was answered, the tests judge.

    python v2_client.py replay|bad JOB.json OUT

`JOB.json` gives the address for each protocol, for each model the file of its golden cases, and requests that are to be
refused: protocol, model and body. OUT.npz gets the answers, by `model/protocol/case/output`; OUT.json the rest. Runs in
the environment of the servers.
"""

import contextlib
import http.client
import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype


def infer(protocol, client, model, inputs):
    """Send arrays by name, and return those that come."""
    v2, binary = (tritonclient.grpc, {}) if protocol == "grpc" else (tritonclient.http, {"binary_data": False})
    given = []
    for name, array in inputs.items():
        given.append(v2.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        given[-1].set_data_from_numpy(array, **binary)
    answer = client.infer(model, given, outputs=None)
    content = answer.get_response(as_json=True) if protocol == "grpc" else answer.get_response()
    return {each["name"]: answer.as_numpy(each["name"]) for each in content["outputs"]}


def cases_of(path):
    """Return name and inputs of each golden case."""
    with np.load(path) as arrays:
        given = [f"{index}/inputs/" for index in range(len(arrays["cases"]))]
        inputs = [{key.removeprefix(at): _sent(arrays[key]) for key in arrays if key.startswith(at)} for at in given]
        return list(zip(map(str, arrays["cases"]), inputs, strict=True))


def _sent(array):
    return array.astype(object) if array.dtype.kind == "U" else array


def _came(array):
    """Return strings as a file holds them."""
    if array.dtype != object:
        return array
    return np.array([each.decode() if isinstance(each, bytes) else each for each in array.flat]).reshape(array.shape)


def refusal(job, protocol, model, body):
    """Send a request that is to be refused, over HTTP as it is, and return the status and what was said."""
    if protocol == "http":
        with contextlib.closing(http.client.HTTPConnection(job["http"], timeout=60)) as connection:
            connection.request("POST", f"/v2/models/{model}/infer", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
    given = []
    for each in body["inputs"]:
        array = np.array(each["data"], triton_to_np_dtype(each["datatype"])).reshape(each["shape"])
        given.append(tritonclient.grpc.InferInput(each["name"], array.shape, each["datatype"]))
        given[-1].set_data_from_numpy(array)
    outputs = [tritonclient.grpc.InferRequestedOutput(each["name"]) for each in body.get("outputs", ())]
    try:
        tritonclient.grpc.InferenceServerClient(job["grpc"]).infer(model, given, outputs=outputs or None)
    except InferenceServerException as error:
        return error.status(), error.message()
    return "OK", ""


def _is_json(array):
    return array.dtype == object or np.isfinite(array).all()


def bad(job):
    return {}, {"refusals": [refusal(job, *request) for request in job["bad"]]}


def replay(job):
    answers, left_out = {}, []
    clients = {
        "grpc": tritonclient.grpc.InferenceServerClient(job["grpc"]),
        "http": tritonclient.http.InferenceServerClient(job["http"], connection_timeout=60, network_timeout=60),
    }
    for model, cases in job["cases"].items():
        for index, (name, inputs) in enumerate(cases_of(cases)):
            for protocol, client in clients.items():
                if protocol == "http" and not all(map(_is_json, inputs.values())):
                    left_out.append((protocol, model, name))  # JSON has neither NaN nor infinities
                    continue
                found = infer(protocol, client, model, inputs)
                answers |= {f"{model}/{protocol}/{index}/{output}": _came(array) for output, array in found.items()}
    metadata = {
        "http": {model: clients["http"].get_model_metadata(model) for model in job["cases"]},
        "grpc": {model: clients["grpc"].get_model_metadata(model, as_json=True) for model in job["cases"]},
    }
    return answers, {"left_out": left_out, "metadata": metadata}


if __name__ == "__main__":
    action, job_file, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    answers, told = {"replay": replay, "bad": bad}[action](json.loads(job_file.read_text()))
    np.savez(out.with_suffix(".npz"), **answers)
    out.with_suffix(".json").write_text(json.dumps(told))
