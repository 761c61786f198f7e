"""Loads a Timestone server through redis-py until its standard input says stop.

Usage: load.py NAME HOST PORT. Writes one line for everything that it asks for and for everything that it is told, as load.rs
reads them. redis-py's own retries are off: what a lost connection leaves open is reported as unknown, not repeated.
"""

import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def say(*words):
    print(*words, flush=True)


def value_of(key):
    return key + "|" + "x" * (sum(key.encode()) * 37 % 1500)


def attempt(work):
    """Runs one command: "done", "refused", or "unknown" when the connection was lost or the server does not know."""
    try:
        work()
        return "done"
    except redis.exceptions.ExecAbortError:
        return "refused"
    except redis.exceptions.ResponseError as error:
        return "unknown" if str(error).startswith("UNKNOWN") else "refused"
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
        time.sleep(0.02)
        return "unknown"


def main():
    name, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    client = redis.Redis(host=host, port=port, socket_timeout=15, retry=Retry(NoBackoff(), 0), retry_on_error=[])
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()

    def transaction(keys):
        pipe = client.pipeline(transaction=True)
        for key in keys:
            pipe.set(key, value_of(key))
        pipe.execute()

    number = 0
    while not stopped.is_set():
        number += 1
        key = f"{name}/{number}"
        say("begin", number, key)
        say(attempt(lambda: client.set(key, value_of(key))), number)

        rising = f"{name}/rising"
        say("rising", "tried", rising, number)
        told = attempt(lambda: client.set(rising, str(number)))
        if told != "unknown":
            say("rising", told, rising, number)

        keys = [f"{name}/{number}/{part}" for part in range(3)]
        say("begin", f"{number}m", *keys)
        say(attempt(lambda: transaction(keys)), f"{number}m")

        counter = f"{name}/counter"
        say("counter", "tried", counter)
        told = attempt(lambda: client.incr(counter))
        if told != "unknown":
            say("counter", told, counter)


main()
