"""TLS connections to a server with a pinned certificate: Prometheus, if it listens for other machines too. It imports
nothing of the set-up, because `up` and `./hpc dashboard` use it as well."""

import socket
import ssl

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h)


def leaf(pem: str) -> str:
    """Return the first certificate, that of the server, in PEM text that may also have others and a key."""
    return _BEGIN + pem.partition(_BEGIN)[2].partition(_END)[0] + f"{_END}\n"


def pinned(pem: str) -> ssl.SSLContext:
    """Return a context that accepts only servers with the key of this certificate.

    Its issuer, its names and its expiry are not checked, so that queries on the machine itself never fail for them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    context.load_verify_locations(cadata=leaf(pem))
    return context


def end(pem: str, port: int) -> float:
    """Return when the certificate of a server on this machine expires. Raises OSError if the server has another one."""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as plain, pinned(pem).wrap_socket(plain) as secure:
        return ssl.cert_time_to_seconds(str((secure.getpeercert() or {})["notAfter"]))
