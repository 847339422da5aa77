"""Every port that a program of ours opens is one of those that are shared fairly."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPENERS = {
    *("create_server", "create_unix_server", "start_server", "start_unix_server", "create_datagram_endpoint"),
    *("AppRunner", "ServerRunner", "run_app", "TCPSite", "SockSite", "UnixSite"),
    *("HTTPServer", "ThreadingHTTPServer", "TCPServer", "make_server", "start_http_server"),
}
"""What libraries call that which opens a port."""
SHARED = {"operator/ddpjob_operator/cluster/serve/fair_server.py", "trainer/ddpjob_rank/machine/listening.py"}

OF_ONE_USER = {
    "operator/ddpjob_operator/client/serve_files.py",
    "operator/ddpjob_operator/cli/dashboard/__init__.py",
    "operator/ddpjob_operator/cli/dashboard/web_server.py",
}
"""On the loopback interface of a pod that a user has made for one command, or of the user's own machine."""

OF_A_DIRECTORY = {"trainer/ddpjob_supervisor/hold/reception.py"}
"""A socket in a directory that no other user may enter."""


def test_ports_are_opened_only_where_hosts_have_their_share_of_the_connections() -> None:
    opening = {
        file.relative_to(ROOT).as_posix()
        for room in ("operator", "trainer")
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in OPENERS
    }
    assert opening == SHARED | OF_ONE_USER | OF_A_DIRECTORY
