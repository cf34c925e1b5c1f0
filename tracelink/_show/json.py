"""Results as JSON, in printable ASCII, which cannot control the terminal."""

from __future__ import annotations

import json
import operator
import re
from typing import Any

NOT_ASCII = re.compile("[^\x00-\x7e]")


def document_text(result: Any) -> str:
    """Returns a result as the document that its JSON Schema describes."""
    import msgspec

    return json_text(msgspec.to_builtins(result, enc_hook=operator.index))


def json_text(document: Any) -> str:
    """Returns the text of a document of plain values."""
    import orjson

    try:
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # names of files can hold what is not UTF-8
        return json.dumps(document, indent=2)
    return NOT_ASCII.sub(lambda char: json.dumps(char[0])[1:-1], text)
