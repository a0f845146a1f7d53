"""A client of the Open Inference Protocol, NVIDIA's, in a process of its own: what it was answered, the tests judge.

    python v2_client.py replay|bad JOB.json OUT

`JOB.json` gives the address for each protocol, and for each model the file of its golden cases and requests that are
to be refused: those of `bad` over both protocols, those of `bad_json` over HTTP alone. OUT.npz gets the answers, by
`model/protocol/case/output`; OUT.json the rest. Runs in the environment of the servers.
"""

import http.client
import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype


def grpc_client(address):
    return tritonclient.grpc.InferenceServerClient(address)


def http_client(address):
    return tritonclient.http.InferenceServerClient(address, connection_timeout=60, network_timeout=60)


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
        names = [str(name) for name in arrays["cases"]]
        return [
            (name, {key.split("/", 2)[2]: arrays[key] for key in arrays.files if key.startswith(f"{index}/inputs/")})
            for index, name in enumerate(names)
        ]


def travels(protocol, inputs):
    """Whether inputs can be sent: JSON has neither NaN nor infinities."""
    floats = [array for array in inputs.values() if array.dtype.kind == "f"]
    return protocol == "grpc" or all(np.isfinite(array).all() for array in floats)


def post(address, model, body):
    """Send a body as it is, and return the status and what was said."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def grpc_refusal(client, model, request):
    """Send a request that is to be refused, and return the status and what was said."""
    given = []
    for each in request["inputs"]:
        array = np.array(each["data"], triton_to_np_dtype(each["datatype"])).reshape(each["shape"])
        given.append(tritonclient.grpc.InferInput(each["name"], array.shape, each["datatype"]))
        given[-1].set_data_from_numpy(array)
    outputs = [tritonclient.grpc.InferRequestedOutput(each["name"]) for each in request.get("outputs", ())]
    try:
        client.infer(model, given, outputs=outputs or None)
    except InferenceServerException as error:
        return error.status(), error.message()
    return "OK", ""


def bad(job):
    client, refusals = grpc_client(job["grpc"]), []
    for model, told in job["models"].items():
        for name, request in told["bad"].items():
            refusals.append(("grpc", model, name, *grpc_refusal(client, model, request)))
            refusals.append(("http", model, name, *post(job["http"], model, json.dumps(request))))
        for name, body in told["bad_json"].items():
            refusals.append(("http", model, name, *post(job["http"], model, body)))
    return {}, {"refusals": refusals}


def replay(job):
    answers, left_out = {}, []
    clients = {"grpc": grpc_client(job["grpc"]), "http": http_client(job["http"])}
    for model, told in job["models"].items():
        for index, (name, inputs) in enumerate(cases_of(told["cases"])):
            for protocol, client in clients.items():
                if not travels(protocol, inputs):
                    left_out.append((protocol, model, name))
                    continue
                found = infer(protocol, client, model, inputs)
                answers |= {f"{model}/{protocol}/{index}/{output}": array for output, array in found.items()}
    metadata = {
        "http": {model: clients["http"].get_model_metadata(model) for model in job["models"]},
        "grpc": {model: clients["grpc"].get_model_metadata(model, as_json=True) for model in job["models"]},
    }
    return answers, {"left_out": left_out, "metadata": metadata}


def main():
    action, job_file, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    answers, told = {"replay": replay, "bad": bad}[action](json.loads(job_file.read_text()))
    np.savez(out.with_suffix(".npz"), **answers)
    out.with_suffix(".json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
