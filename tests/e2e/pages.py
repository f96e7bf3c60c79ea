"""A web server on a cluster's controller, for scripts that are downloaded."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.e2e.cluster import Cluster, eventually


def serve(cluster: Cluster, pages: dict[str, str]) -> None:
    """Serve pages on the controller, to itself, by https with a certificate that it trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pages")])
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    program = f"""
import http.server, ssl
PAGES = {pages!r}
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGES[self.path].encode())
server = http.server.HTTPServer(("127.0.0.1", 8443), Server)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/root/pages.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
    trusted = "python3 -c 'import ssl; print(ssl.get_default_verify_paths().openssl_cafile)'"
    cluster.inside(
        "controller",
        f"""
cat > /root/pages.pem <<'END'
{secret}{pem}END
cat > /root/pages.py <<'END'
{program}END
file=$({trusted}); mkdir -p "$(dirname "$file")"; cat >> "$file" <<'END'
{pem}END
systemd-run --quiet --unit=pages python3 /root/pages.py
""",
    )
    knock = "import socket; socket.create_connection(('127.0.0.1', 8443))"
    eventually(
        lambda: cluster.inside("controller", f'python3 -c "{knock}" 2>/dev/null && echo open || true') == "open",
        what="the server's start",
    )
