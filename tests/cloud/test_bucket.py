"""Objects by URL: reading, writing, retries after faults, and error messages."""

from __future__ import annotations

import io
import os
import pickle
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dsel.data.as_dataset import as_dataset
from dsel.errors import AccessError, MissingExtraError, MissingInputError, OptionError, StorageError
from dsel.storage import retries as bucket_connection
from dsel.storage.object_store import ObjectPath
from dsel.storage.paths import as_path, is_inside, open_for_writing
from pipelines.s3_faults import KINDS, FaultProxy, Kind, always, drawn
from tests.cloud.conftest import SECRETS, forget_connections
from tests.stores import make_store, regression

BYTES = os.urandom(50_000)


@pytest.fixture
def place(url: str) -> ObjectPath:
    found = as_path(f"{url}/some/folder")
    assert isinstance(found, ObjectPath)
    return found


class TestNames:
    def test_a_url_is_a_name_and_anything_else_a_path(self) -> None:
        for url in ("s3://b/a/c.csv", "gs://b/a/c.csv", "az://b/a/c.csv"):
            place = as_path(url)
            assert isinstance(place, ObjectPath)
            assert str(place) == url
            assert (place.name, place.suffix, str(place.with_name("d"))) == ("c.csv", ".csv", f"{url[:2]}://b/a/d")
            assert str(place / "x/y") == f"{url}/x/y"
        assert as_path("a/b") == Path("a/b")
        assert is_inside(as_path("s3://b/a/c"), as_path("s3://b/a"))
        assert not is_inside(as_path("s3://b/ab"), as_path("s3://b/a"))
        assert not is_inside(as_path("s3://c/a/c"), as_path("s3://b/a"))
        assert not is_inside(Path("a"), as_path("s3://b/a"))

    @pytest.mark.parametrize("url", ["http://b/a", "s3://b", "s3:///a", "s3://b/../a", "hdfs://b/a", "s3:/b/a"])
    def test_others_are_refused(self, url: str) -> None:
        with pytest.raises(OptionError):
            as_path(url)
        with pytest.raises(OptionError, match="as a str"):
            as_path(Path("s3://b/a"))

    @pytest.mark.parametrize("url", ["s3://AKIA:geheim@b/a", "az://b/a?sig=geheim", "s3://b/a?X-Amz-Signature=geheim"])
    def test_secrets_in_them_are_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(OptionError, match="from the environment") as caught:
            as_path(url)
        assert "geheim" not in str(caught.value)


class TestObjects:
    def test_what_is_written_is_read_and_listed_and_removed(self, place: ObjectPath) -> None:
        assert not place.exists()
        (place / "a").write_bytes(BYTES)
        (place / "b/c").write_bytes(b"c")
        with open_for_writing(place / "d") as file:
            file.write(BYTES * 200)  # in parts
        assert place.exists()
        assert not place.is_file()
        assert (place / "a").read_bytes() == BYTES
        assert {e.key: e.size for e in place.walk()} == {"a": len(BYTES), "b/c": 1, "d": 200 * len(BYTES)}
        assert place.list_names() == {"a", "b", "d"}
        (place / "a").unlink()
        (place / "a").unlink()
        with pytest.raises(FileNotFoundError):
            (place / "a").read_bytes()
        place.remove_tree()
        assert not place.exists()

    def test_an_object_is_a_seekable_file_until_it_is_replaced(self, place: ObjectPath) -> None:
        (place / "a").write_bytes(BYTES * 400)
        with (place / "a").open("rb") as file:
            assert file.read(10) == BYTES[:10]
            file.seek(-10, io.SEEK_END)
            assert file.read() == BYTES[-10:]
            file.seek(19_999_000)
            assert file.read(2000) == (BYTES * 400)[19_999_000:][:2000]
            (place / "a").write_bytes(BYTES[::-1] * 400)
            file.seek(0)
            with pytest.raises(StorageError, match="replaced while it was read"):
                file.read(10)

    def test_an_object_is_created_once(self, place: ObjectPath) -> None:
        assert place.create(b"one")
        assert not place.create(b"two")
        assert place.read_bytes() == b"one"


OPERATIONS: dict[str, Callable[[ObjectPath], Any]] = {
    "get": lambda p: (p / "a").read_bytes(),
    "absent": lambda p: (p / "absent").is_file(),
    "range": lambda p: (p / "a").open("rb").read(),
    "put": lambda p: (p / "new").write_bytes(BYTES),
    "list": lambda p: {e.key for e in p.walk()} - {"new"},
    "names": lambda p: p.list_names() - {"new"},
    "unlink": lambda p: (p / "new").unlink(),
}


class TestFaults:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_request_is_repeated_until_it_works(self, place: ObjectPath, proxy: FaultProxy, kind: Kind) -> None:
        (place / "a").write_bytes(BYTES)
        (place / "b").write_bytes(b"b")
        expected = {name: operation(place) for name, operation in OPERATIONS.items()}
        proxy.reset()
        proxy.rule = lambda r: kind if r.times < 2 else None
        proxy.slow_seconds = 0.01
        for name, operation in OPERATIONS.items():
            assert operation(place) == expected[name], name
        assert proxy.faults()[kind] >= len(OPERATIONS)

    @pytest.mark.parametrize("before", ["500", "reset"])
    def test_what_obstore_does_not_repeat_is_repeated_after_any_fault(
        self, place: ObjectPath, proxy: FaultProxy, before: Kind
    ) -> None:
        proxy.rule = lambda r: (before, "truncate")[r.times] if r.times < 2 else None
        with pytest.raises(FileNotFoundError):
            (place / "nothing").read_bytes()  # this answer also has a body, which may end early
        assert [fault for _, fault in proxy.record] == [before, "truncate", ""]

    def test_a_missing_answer_times_out(
        self, place: ObjectPath, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.write_bytes(BYTES)
        monkeypatch.setattr(bucket_connection, "READ_TIMEOUT", timedelta(seconds=0.2))
        forget_connections()
        proxy.reset()
        proxy.slow_seconds = 1.0
        proxy.rule = lambda r: "slow" if r.times == 0 else None
        assert place.read_bytes() == BYTES
        first, *others = [fault for _, fault in proxy.record]
        assert (first, set(others)) == ("slow", {""})  # a busy machine may be late again

    @pytest.mark.parametrize(
        ("kind", "why"), [("500", "status 500 .InternalError."), ("503", "SlowDown"), ("reset", "connection")]
    )
    def test_there_is_a_limit_and_the_error_names_object_attempts_and_remedy(
        self, place: ObjectPath, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, kind: Kind, why: str
    ) -> None:
        monkeypatch.setattr(bucket_connection, "RETRIES", 3)
        forget_connections()
        proxy.reset()
        proxy.rule = always(kind)
        with pytest.raises(StorageError, match=why) as caught:
            (place / "x").read_bytes()
        assert len(proxy.record) == 4
        assert str(place / "x") in caught.value.what
        assert "tried 4 times" in caught.value.what
        assert "continues" in caught.value.remedy
        assert pickle.loads(pickle.dumps(caught.value)).attempts == 4

    def test_zarr_repeats_requests_and_a_store_is_read_exactly(self, url: str, proxy: FaultProxy) -> None:
        X, Y = regression(m=300)
        make_store(f"{url}/data.zarr", X, Y, chunks=(50, 12))  # type: ignore[arg-type]
        proxy.rule = drawn(11)
        proxy.slow_seconds = 0.01
        dataset = as_dataset(f"{url}/data.zarr")
        assert dataset.store is not None
        assert (dataset.store.x.read(0, 300) == X).all()
        assert dataset.fingerprint == as_dataset(f"{url}/data.zarr").fingerprint
        assert set(proxy.faults()) >= {"500", "reset", "truncate"}


class TestRefusals:
    def test_they_are_not_repeated(self, place: ObjectPath, proxy: FaultProxy) -> None:
        proxy.rule = always("403")
        for operation in (OPERATIONS["get"], OPERATIONS["put"], OPERATIONS["list"]):
            proxy.record.clear()
            with pytest.raises(AccessError, match="denied") as caught:
                operation(place)
            assert len(proxy.record) == 1
            text = f"{caught.value!r} {caught.value}"
            assert not [secret for secret in SECRETS.values() if secret in text]
        assert AccessError.exit_code == 77

    def test_a_missing_bucket_is_named(self, proxy: FaultProxy) -> None:
        place = as_path("s3://no-such-bucket/x")
        assert isinstance(place, ObjectPath)
        for operation in (place.read_bytes, lambda: place.write_bytes(b""), lambda: list(place.walk())):
            with pytest.raises(MissingInputError, match="no bucket s3://no-such-bucket"):
                operation()
        with pytest.raises(MissingInputError, match="no bucket"):
            as_dataset("s3://no-such-bucket/x")

    def test_without_credentials_no_request_is_sent(self, place: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreachable(*_: Any, **__: Any) -> socket.socket:
            raise OSError("no route to host")

        for name in SECRETS:
            monkeypatch.delenv(name)
        monkeypatch.setattr(socket, "create_connection", unreachable)
        forget_connections()
        with pytest.raises(AccessError, match=re.escape("Set AWS_ACCESS_KEY_ID")):
            place.read_bytes()

    def test_without_obstore_the_extra_is_named(self, place: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
        forget_connections()
        monkeypatch.setitem(__import__("sys").modules, "obstore", None)
        monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
        with pytest.raises(MissingExtraError, match=r"dsel\[cloud\]"):
            place.read_bytes()


def test_what_is_sent_to_workers_contains_no_secret(url: str) -> None:
    X, Y = regression(m=60)
    make_store(f"{url}/data.zarr", X, Y)  # type: ignore[arg-type]
    dataset = as_dataset(f"{url}/data.zarr")
    dataset.blocks[0].x.read()
    sent = pickle.dumps((dataset.blocks, as_path(url + "/x")))
    assert not [secret for secret in SECRETS.values() if secret.encode() in sent]


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_storages_use_their_own_environment(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    forget_connections()
    store = bucket_connection.connection(scheme, "name", "some/prefix")
    assert type(store).__name__ == {"gs": "GCSStore", "az": "AzureStore"}[scheme]
    assert store.prefix == "some/prefix"
    forget_connections()


def test_above_the_first_folder_is_the_bucket_itself(url: str, proxy: FaultProxy) -> None:
    out = as_path(f"{url}/out")
    (out / "job.json").write_bytes(b"{}")  # type: ignore[union-attr]
    bucket = out.parent
    assert isinstance(bucket, ObjectPath)
    assert bucket.list_names() == {"out"}
    assert bucket / "out" == out
    assert not (bucket / "latest").is_file()
