#!/usr/bin/env python3
"""The fingerprint of a model of two files, for tests/unit/store/test_incoming.c, by hashlib (store/fingerprint.h)."""
import hashlib
import struct

FILES = {"config.json": b'{"a": 1}\n', "model.safetensors": b"weights"}

whole = hashlib.sha256(b"quern model 1\0" + b"\0")
for name, data in sorted(FILES.items()):
    whole.update(name.encode() + b"\0" + struct.pack("<Q", len(data)) + hashlib.sha256(data).digest())
print(whole.hexdigest())
