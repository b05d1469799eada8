"""Ports of 127.0.0.1 for tests in Python; ports.h is for those in C. They are below those that the kernel gives to
connections: a server that ends and starts again finds its port free, and a client that connects meanwhile is not
connected to itself. A port belongs to the program that got it until the program ends."""
import itertools
import os
import socket
import threading

claims = []


def claimed(port):
    """Whether no other program had it; now this one has. It holds a Unix socket's abstract name, which ends with the
    process: between the check and the server's bind() another program would find the port free, too."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0bloomery-test-port-{port}")
    except OSError:
        claim.close()
        return False
    claims.append(claim)
    return True


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class FreePorts:
    """An iterator of ports that are free at all of the distances; several threads may take from it, as from no generator."""

    def __init__(self, candidates, distances):
        self.lock = threading.Lock()
        self.candidates = candidates
        self.distances = distances

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            for port in self.candidates:
                if claimed(port) and all(is_free(port + distance) for distance in self.distances):
                    return port
        raise StopIteration


def free_ports(first, last, distances=(0,)):
    """Ports from `first` to below `last`, each of which is free at all these distances. Programs begin at different ones."""
    begin = first + os.getpid() * 32 % (last - first)
    return FreePorts(itertools.chain(range(begin, last), range(first, begin)), distances)
