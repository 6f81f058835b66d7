"""TLS before a server that has none: certificates made on the spot, and a door that ends the TLS.

The servers of the wheels are built without TLS. What a client does is the same before this door.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "localhost"
SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""How a Postgres client asks for TLS before it says anything else."""


@dataclass(frozen=True)
class Authority:
    """Who signs: its certificate for clients, and what a server shows."""

    ca: Path
    server: Path
    """Certificate and key."""


def authority(folder: Path, name: str) -> Authority:
    """A new one, with a certificate for `NAME` and no other."""
    now = datetime.datetime.now(datetime.UTC)

    def sign(subject: str, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if not is_ca:
            names = x509.SubjectAlternativeName([x509.DNSName(subject)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pem = serialization.Encoding.PEM
    ca, server = folder / f"{name}.pem", folder / f"{name}-server.pem"
    ca.write_bytes(sign(name, ca_key, True).public_bytes(pem))
    own = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server.write_bytes(sign(NAME, key, False).public_bytes(pem) + own)
    return Authority(ca, server)


@contextlib.contextmanager
def door(signed: Authority, behind: str, *, postgres: bool = False) -> Iterator[int]:
    """A port where TLS, and nothing else, leads to the Unix socket `behind`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.server)

    def serve(line: socket.socket) -> None:
        with contextlib.suppress(OSError), line:
            if postgres and line.recv(8) != SSL_REQUEST:
                return
            if postgres:
                line.sendall(b"S")
            with (
                context.wrap_socket(line, server_side=True) as secret,
                socket.socket(socket.AF_UNIX) as plain,
            ):
                plain.connect(behind)
                back = threading.Thread(target=pump, args=(plain, secret), daemon=True)
                back.start()
                pump(secret, plain)

    def pump(source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while found := source.recv(65_536):
                to.sendall(found)
            to.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                threading.Thread(target=serve, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
