"""Reads a `config.pbtxt` with the protobuf of Triton's client, and prints what is set: `parse_config.py FILE`."""

import json
import sys
from pathlib import Path

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

if __name__ == "__main__":
    config = text_format.Parse(Path(sys.argv[1]).read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    print(json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True)))
