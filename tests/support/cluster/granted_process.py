"""``selvage`` with an account's rights: ``python -m tests.support.cluster.granted_process ACCOUNT WORDS``.

Both of its connections to the API server are limited to the Role: the Kubernetes client and kopf's. A drill
sends its load by the library of the latter; requests to models need no rights.
"""

from __future__ import annotations

import re
import sys
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from kopf._cogs.clients.errors import APIForbiddenError
from kubernetes import client
from kubernetes.client import rest

from tests.support.cluster.granted import call_of, granted, note

#: Paths of resources on an API server.
_RESOURCES = re.compile("/apis?/")


def install(account: str) -> None:
    """Limit this process to the Role of ``account``."""
    allowed = granted(account)
    plain, connected = rest.RESTClientObject.request, aiohttp.ClientSession._request

    def request(self: rest.RESTClientObject, method: str, url: str, **arguments: Any) -> Any:
        call = call_of(method, url, arguments.get("query_params") or ())
        if call is not None:
            note(account, call, allowed)
        return plain(self, method, url, **arguments)

    async def connect(self: aiohttp.ClientSession, method: str, url: Any, **arguments: Any) -> Any:
        call = call_of(method.upper(), str(url)) if _RESOURCES.match(urlsplit(str(url)).path) else None
        try:
            if call is not None:
                note(account, call, allowed)
        except client.ApiException as error:
            raise APIForbiddenError(str(error.reason), status=403, headers={}) from None
        return await connected(self, method, url, **arguments)

    rest.RESTClientObject.request = request
    aiohttp.ClientSession._request = connect


if __name__ == "__main__":
    install(sys.argv.pop(1))
    from scripts.cli.main import main

    main()
