"""TLS with a server whose certificate is at hand: Prometheus, where it listens for others too. Standard library alone,
and nothing of this set-up: `up` and `./hpc dashboard` use it as well."""

import socket
import ssl

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h)


def leaf(pem: str) -> str:
    """The first certificate, that of the server, of PEM that may have others and a key too."""
    return _BEGIN + pem.partition(_BEGIN)[2].partition(_END)[0] + f"{_END}\n"


def pinned(pem: str) -> ssl.SSLContext:
    """TLS with whoever has the key of this certificate, and nobody else.

    Who has signed it, whom it names and when it ends does not matter: what asks on the machine itself goes on.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    context.load_verify_locations(cadata=leaf(pem))
    return context


def end(pem: str, port: int) -> float:
    """The time when the certificate ends that a server on this machine shows. Raises OSError: it is another one."""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as plain, pinned(pem).wrap_socket(plain) as secure:
        return ssl.cert_time_to_seconds(str((secure.getpeercert() or {})["notAfter"]))
