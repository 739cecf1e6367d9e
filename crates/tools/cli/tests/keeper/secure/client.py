"""client.py HOST:PORT CA CERTIFICATE KEY WHAT PATH [SUBJECT] - kazoo at the secure port of a keeper; CERTIFICATE and
KEY are '-' for a client that has none, CA too for one at the plain port.

WHAT is create (with an access list for the owner of SUBJECT), auth (with one for whoever it is itself), or read.
"""
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl

hosts, ca, certificate, key, what, path = sys.argv[1:7]
given = lambda argument: None if argument == "-" else argument
client = KazooClient(
    hosts=hosts,
    use_ssl=ca != "-",
    ca=given(ca),
    certfile=given(certificate),
    keyfile=given(key),
)
try:
    client.start(timeout=8)
except KazooTimeoutError:
    print("refused")
    client.stop()
    sys.exit()
try:
    if what == "create":
        client.create(path, b"secret", acl=[make_acl("x509", sys.argv[7], all=True)])
    if what == "auth":
        client.create(path, b"own", acl=[make_acl("auth", "", all=True)])
        print(client.get_acls(path)[0][0].id)
    data, _ = client.get(path)
    print(data.decode())
except NoAuthError:
    print("no auth")
client.stop()
