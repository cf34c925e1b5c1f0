"""Addresses, and texts without secrets."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._io.remote.addresses import is_remote, plain_path, shown, within_store, without_secrets
from tracelink._io.remote.attempts import failed

SECRETS = st.text(string.ascii_letters + string.digits, min_size=12, max_size=40).map(
    lambda text: f"Q7{text}"
)


@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket/a",
        "gs://b",
        "az://c/a",
        "hdfs://host/a",
        "http://h/a",
        "HTTPS://h",
        "hf://datasets/a",
        "ssh://h/a",
    ],
)
def test_addresses_of_stores(path: str) -> None:
    assert is_remote(path)
    assert shown(path) == path


@pytest.mark.parametrize(
    "path", ["a.json", "/a//b", "C://a", "c:/a", "-", "", "file:///a", "s3:/bucket/a", "a/s3://b", "~/a"]
)
def test_local_paths(path: str) -> None:
    assert not is_remote(path)
    assert shown(path) == path
    assert within_store(path) == path


def test_addresses_of_local_files(tmp_path: Path) -> None:
    (tmp_path / "a%20b").write_bytes(b"")
    assert plain_path(f"file://{tmp_path}/a%20b") == f"{tmp_path}/a%20b"
    assert plain_path(f"file://localhost{tmp_path}/c%20d") == f"{tmp_path}/c d"
    assert plain_path("a%20b") == "a%20b"


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("https://host/a.json?X-Amz-Signature=00ff&x=1", "https://host/a.json"),
        ("https://user:word@host:80/a.json", "https://host:80/a.json"),
        ("https://token@host/a.json#part", "https://host/a.json"),
        ("https://host?token=word", "https://host"),
        ("az://container/a.json?sv=2022&sig=abc", "az://container/a.json"),
        ("gs://bucket/a.json?X-Goog-Credential=abc", "gs://bucket/a.json"),
        ("s3://KEY:SECRET@bucket/a.json", "s3://bucket/a.json"),
        ("ssh://user:word@host/a.json", "ssh://host/a.json"),
        ("ssh://user@host/a.json", "ssh://user@host/a.json"),
        (
            "abfs://container@account.dfs.core.windows.net/a",
            "abfs://container@account.dfs.core.windows.net/a",
        ),
        ("s3://bucket/what?.json", "s3://bucket/what?.json"),
    ],
)
def test_secrets_in_addresses_are_not_shown(address: str, printed: str) -> None:
    assert shown(address) == printed
    assert shown(printed) == printed


@given(SECRETS, st.sampled_from(["", " retried", "\n", ")", "'", '"', "&x=1", ", url"]))
def test_secrets_in_texts_of_libraries_are_hidden(secret: str, rest: str) -> None:
    for text in (
        f"Cannot connect to https://user:{secret}@host:443/a{rest}",
        f"403, url='https://host/a?X-Amz-Credential=x&X-Amz-Signature={secret}{rest}",
        f"https://account.blob.core.windows.net/c/a?sv=1&sig={secret}{rest}",
        f"X-Amz-Signature={secret}{rest}",
        f"Authorization: Bearer {secret}{rest}",
        f"authorization: AWS4-HMAC-SHA256 {secret}{rest}",
        f"{{'aws_secret_access_key': '{secret}'}}{rest}",
        f"AccountKey={secret};EndpointSuffix=x{rest}",
        f"password={secret}{rest}",
        f"the token: {secret}{rest}",
        f"GET https://host/a with Basic {secret}{rest}",
    ):
        assert secret not in without_secrets(text), text


def test_secrets_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghij")
    monkeypatch.setenv("SHORT_TOKEN", "a")
    text = "signed with wJalrXUtnFEMI/K7MDENG, then hf_abcdefghij: a status"
    assert without_secrets(text) == "signed with ***, then ***: a status"


@given(st.text())
def test_texts_without_secrets_stay_as_they_are(text: str) -> None:
    if not re.search(r"://|[=:]|bearer|basic", text, re.IGNORECASE):
        assert without_secrets(text) == text


def test_a_user_in_the_address_of_a_bucket_is_hidden_in_errors_of_libraries() -> None:
    error = failed("s3://AKIA:pa55w0rd@b/x.json", ValueError('Invalid bucket name "AKIA:pa55w0rd@b"'), 1)
    assert str(error).startswith('s3://b/x.json: the store cannot be used (Invalid bucket name "b")')
    assert "pa55w0rd" not in str(error)
