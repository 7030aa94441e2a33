"""Certificates for tests: an authority that nobody knows, and what it signs.

All keys are drawn anew; the certificates are files in a folder of the test's.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

BEGIN = datetime.datetime(2020, 1, 1)
END = datetime.datetime(2120, 1, 1)


class Authority:
    """A private authority.

    Attributes:
        pem: the file with its certificate: what a user names as the bundle.

    Args:
        folder: where its files go.
        name: tells it from others.
        above: another authority, which has signed its certificate; None: it signs itself.
    """

    def __init__(
        self, folder: Path, name: str = "authority", above: Authority | None = None
    ) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        above = above or self
        made = (
            _builder(self._name, above._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(above._key, hashes.SHA256())
        )
        self.pem = str(folder / f"{name}.pem")
        Path(self.pem).write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, end: datetime.datetime = END) -> ssl.SSLContext:
        """The context of a server with a certificate for these names or addresses.

        Args:
            names: of hosts, or addresses.
            end: until when it is valid.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.signed("server", names, end))
        return context

    def signed(
        self, subject: str, names: tuple[str, ...] = (), end: datetime.datetime = END
    ) -> str:
        """A file with a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(_named(subject), self._name, key, end)
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
            built = built.add_extension(alternatives, critical=False)
        file = self._folder / f"{subject}-{key.public_key().public_numbers().x:x}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return str(file)

    def folder(self, name: str) -> str:
        """A folder with its certificate, in which OpenSSL looks it up: ``/etc/ssl/certs`` in
        small."""
        folder = self._folder / name
        folder.mkdir()
        (folder / f"{_openssl_hash(self._name):08x}.0").write_bytes(Path(self.pem).read_bytes())
        return str(folder)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, end: datetime.datetime = END
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(end)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _openssl_hash(name: x509.Name) -> int:
    """OpenSSL's hash of a name, by which it finds a file: SHA-1 of the name without its outermost
    tag. Names of ours are in lower case and UTF-8 already, as that hash wants them."""
    encoded = name.public_bytes()
    assert len(encoded) < 0x80, "a short name has a tag and a length of one byte each"
    return int.from_bytes(hashlib.sha1(encoded[2:], usedforsecurity=False).digest()[:4], "little")
