"""Common code of the Python sessions: the addresses of the daemons, and checks that report their values."""
import os
import sys
import time
import traceback

PORT = int(os.environ["BLOOMERY_PORT"])
AUTH_PORT = int(os.environ["BLOOMERY_AUTH_PORT"])
CLUSTER_PORT = int(os.environ["BLOOMERY_CLUSTER_PORT"])
PASSWORD = os.environ["BLOOMERY_PASSWORD"]
TEST_DIR = os.environ["BLOOMERY_TEST_DIR"]
TLS_DIR = os.environ.get("BLOOMERY_TLS_DIR")
# Arguments of redis-py beside the port, and in a URL.
TLS = dict(ssl=True, ssl_ca_certs=f"{TLS_DIR}/ca.crt", ssl_certfile=f"{TLS_DIR}/client.crt",
           ssl_keyfile=f"{TLS_DIR}/client.key") if TLS_DIR else {}
SCHEME = "rediss" if TLS_DIR else "redis"
PATIENCE_S = 240  # for certain events


def equal(got, expected):
    if got != expected or type(got) is not type(expected):
        raise AssertionError(f"got {got!r} instead of {expected!r}")


def holds(condition, what):
    if not condition:
        raise AssertionError(f"not so: {what}")


def raises(kind, text, function, *args, **kwargs):
    """The call fails with exactly this kind of exception, and `text` is in its message."""
    try:
        got = function(*args, **kwargs)
    except Exception as error:
        if type(error) is not kind or text not in str(error):
            raise AssertionError(f"raised {error!r} instead of {kind.__name__} with '{text}'") from error
        return
    raise AssertionError(f"got {got!r} instead of {kind.__name__} with '{text}'")


def until(condition, what):
    """Polls until the condition returns something true, which is returned."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {PATIENCE_S} s: {what}")
        time.sleep(0.01)


def run(title, claims):
    """Runs all claims in order, also after failures; returns the exit status."""
    failed = 0
    for claim in claims:
        try:
            claim()
        except Exception:
            failed += 1
            print(f"FAILED {claim.__name__}: {(claim.__doc__ or '').strip()}")
            traceback.print_exc(file=sys.stdout)
    print(f"{title}: {len(claims) - failed} of {len(claims)} claims hold")
    sys.stdout.flush()
    return 1 if failed or not claims else 0


def claims_of(module):
    """The functions of a module whose names begin with test_, in the order of the file."""
    return [value for name, value in vars(module).items() if name.startswith("test_") and callable(value)]
