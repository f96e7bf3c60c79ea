"""A stand-in of `gcloud compute start-iap-tunnel`: the same arguments, the same messages, and working connections.

The file FAKE_GCLOUD controls it: {"ports": {instance: [address, port]}, "mood": ..., "boots": n}. Each call adds its
process id and arguments to a file of that name with the suffix `.log`.
"""

import argparse
import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

NAME = "(gcloud.compute.start-iap-tunnel)"
# As the Google Cloud SDK 528 prints them.
WORDS = {
    "login": f"ERROR: {NAME} You do not currently have an active account selected.\nPlease run:\n\n"
    "  $ gcloud auth login\n\nto obtain new credentials.\n",
    "denied": f"ERROR: {NAME} While checking if a connection can be made: "
    "Error while connecting [4033: 'not authorized'].\n",
    "missing": f"ERROR: {NAME} Could not fetch resource:\n - The resource 'projects/my-project/zones/us-central1-a/"
    "instances/gone' was not found\n",
    "booting": f"ERROR: {NAME} While checking if a connection can be made: "
    "Error while connecting [4003: 'failed to connect to backend']. (Failed to connect to port 22)\n",
}


def pump(read, write, done):
    """Copy bytes until the end."""
    with suppress(OSError):
        while data := read():
            write(data)
    done()


def relay(here, target):
    """Relay a local connection to the machine's SSH server, in both directions."""
    there = socket.create_connection(target)

    def close():
        for end in (here, there):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=pump, args=(lambda: here.recv(65536), there.sendall, close), daemon=True).start()
    pump(lambda: there.recv(65536), here.sendall, close)


def relay_stdio(target):
    """Relay standard input and output to the machine's SSH server."""
    there = socket.create_connection(target)
    threading.Thread(
        target=pump, args=(lambda: os.read(0, 65536), there.sendall, lambda: os._exit(0)), daemon=True
    ).start()
    pump(lambda: there.recv(65536), lambda data: os.write(1, data), lambda: None)


def main():
    """Open the tunnel, or print the error of the mood."""
    parser = argparse.ArgumentParser()
    for name in ("group", "verb", "instance"):
        parser.add_argument(name)
    parser.add_argument("port", type=int)
    for name in ("--project", "--zone", "--local-host-port", "--verbosity"):
        parser.add_argument(name)
    parser.add_argument("--listen-on-stdin", action="store_true")
    args = parser.parse_args()
    file = Path(os.environ["FAKE_GCLOUD"])
    with Path(f"{file}.log").open("a") as log:
        log.write(json.dumps({"pid": os.getpid(), "args": sys.argv[1:]}) + "\n")
    behaviour = json.loads(file.read_text())
    mood = behaviour.get("mood")
    if mood == "booting" and behaviour["boots"]:
        file.write_text(json.dumps({**behaviour, "boots": behaviour["boots"] - 1}))
    elif mood == "booting":
        mood = None
    if mood:
        sys.stderr.write(WORDS[mood])
        return 1
    assert (args.group, args.verb, args.port) == ("compute", "start-iap-tunnel", 22)
    assert (args.project, args.zone) == ("my-project", "us-central1-a")
    target = tuple(behaviour["ports"][args.instance])
    if args.listen_on_stdin:
        relay_stdio(target)
        return 0
    host, _, port = args.local_host_port.partition(":")
    print("Testing if tunnel connection works.", file=sys.stderr)
    with socket.create_server((host, int(port))) as server:
        print(f"Listening on port [{port}].", flush=True)
        while True:
            here, _ = server.accept()
            threading.Thread(target=relay, args=(here, target), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
