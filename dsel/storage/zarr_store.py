"""Object storage as Zarr sees it, with errors of dsel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import lru_cache
from typing import Any, TypeVar

from dsel.storage.connection import connection, obstore_module
from dsel.storage.object_store import Remote
from dsel.storage.retries import Patience

T = TypeVar("T")


@lru_cache(maxsize=64)
def zarr_objects(place: Remote) -> Any:
    """What stands below `place` as Zarr sees it, with errors of dsel."""
    from zarr.storage import ObjectStore

    class Objects(ObjectStore[Any]):
        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            get = super().get
            return await _ask_async(f"{place}/{key}", lambda: get(key, *args, **kwargs))

        async def set(self, key: str, value: Any) -> None:
            obstore = obstore_module()

            data = value.as_buffer_like()  # one request, so that no part is left behind
            await _ask_async(
                f"{place}/{key}", lambda: obstore.put_async(self.store, key, data, use_multipart=False)
            )  # fmt: skip

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            set_if_not_exists = super().set_if_not_exists  # what a lost answer leaves to find is the same
            await _ask_async(f"{place}/{key}", lambda: set_if_not_exists(key, value))

        async def exists(self, key: str) -> bool:
            exists = super().exists
            return await _ask_async(f"{place}/{key}", lambda: exists(key))

        async def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
            listed = super().list_dir

            async def names() -> list[str]:
                return [name async for name in listed(prefix)]

            for name in await _ask_async(f"{place}/{prefix}", names):
                yield name

    return Objects(connection(place.scheme, place.bucket, place.key))


async def _ask_async(where: str, request: Callable[[], Awaitable[T]]) -> T:
    patience = Patience(where)
    while True:
        try:
            return await request()
        except Exception as error:
            await asyncio.sleep(patience.after(error))
