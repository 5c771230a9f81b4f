"""Zarr stores: over object storage with repeated requests, and one in which every chunk must exist."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import lru_cache
from typing import Any, TypeVar

from dsel.storage.object_store import ObjectPath
from dsel.storage.retries import RetryPolicy, connection, obstore_module

T = TypeVar("T")


@lru_cache(maxsize=64)
def object_zarr_store(path: ObjectPath) -> Any:
    """Return a Zarr store of the objects below `path`."""
    from zarr.storage import ObjectStore

    class RetryingStore(ObjectStore[Any]):
        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            get = super().get
            return await _request(f"{path}/{key}", lambda: get(key, *args, **kwargs))

        async def set(self, key: str, value: Any) -> None:
            obstore = obstore_module()
            data = value.as_buffer_like()  # one request, so that it leaves no part behind
            await _request(f"{path}/{key}", lambda: obstore.put_async(self.store, key, data, use_multipart=False))

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            set_if_not_exists = super().set_if_not_exists  # a repeated request finds the same content
            await _request(f"{path}/{key}", lambda: set_if_not_exists(key, value))

        async def exists(self, key: str) -> bool:
            exists = super().exists
            return await _request(f"{path}/{key}", lambda: exists(key))

        async def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
            list_dir = super().list_dir

            async def names() -> list[str]:
                return [name async for name in list_dir(prefix)]

            for name in await _request(f"{path}/{prefix}", names):
                yield name

    return RetryingStore(connection(path.scheme, path.bucket, path.key))


class LostChunkError(Exception):
    """A chunk that must exist does not."""


@lru_cache(maxsize=1)
def complete_store() -> Any:
    """Return the class of a store whose absent chunks are errors.

    Zarr reads an absent chunk as fill values. This finds a lost one without asking for each chunk first.
    """
    from zarr.storage import WrapperStore

    class CompleteStore(WrapperStore[Any]):
        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            value = await super().get(key, *args, **kwargs)
            if value is None and key.rpartition("/")[2] not in _METADATA:
                raise LostChunkError(key)
            return value

    return CompleteStore


#: Files of metadata, of Zarr formats 3 and 2, any of which may be absent.
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


async def _request(where: str, request: Callable[[], Awaitable[T]]) -> T:
    import asyncio  # with ssl, takes longer than most of this package

    policy = RetryPolicy(where)
    while True:
        try:
            return await request()
        except Exception as error:
            await asyncio.sleep(policy.delay_after(error))
