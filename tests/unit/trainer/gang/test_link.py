"""Connections between supervisors, over this machine's loopback addresses."""

import asyncio
import sys

import pytest
from ddpjob_trainer.supervisor.gang.link import TcpLink, connect


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_who_listens_on_one_of_several_addresses_connects_from_there() -> None:
    async def test() -> str:
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = TcpLink(reader, writer)
            came.set_result(link.peer_host)
            await link.close()

        server = await asyncio.start_server(serve, "127.0.0.2", 0)
        async with server:
            link = await connect(f"127.0.0.2:{server.sockets[0].getsockname()[1]}", "127.0.0.3")
            host = await came
            await link.close()
        return host

    assert asyncio.run(test()) == "127.0.0.3"
