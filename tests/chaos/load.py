"""load.py - clients that keep a service busy and retry each job until it is done."""

import threading
import time

from jobclient import JobClient, JobError
from service import eventually

RETRY_S = 2.5   # without a reply for this long, the job is submitted again under the same key
GIVE_UP_S = 150


def specs(n, tokens):
    """Make n different jobs: (prompt, parameters). Each has a seed, so that its tokens are known."""
    begin = ["Once upon a time", "A little dog", "The king said", "In the dark wood", "Tom and Anna", "One day, a bird"]
    return [(f"{begin[i % len(begin)]} {'and then ' * (i % 7)}{i}",
             dict(max_tokens=tokens // 2 + (i * 37) % tokens, seed=i, ignore_eos=True, temperature=0.0 if i % 3 == 0 else 1.0,
                  n=1 + (i % 5 == 0)))
            for i in range(n)]


def tokens_of(done):
    return [o["tokens"] for o in done.outputs]


class Lost(Exception):
    pass


class Load:
    """Threads that run jobs by number, until stop() or until `count` jobs were started."""

    def __init__(self, endpoint, jobs, threads=6, count=None, connect=JobClient):
        self.endpoint, self.jobs, self.connect = endpoint, jobs, connect
        self.lock = threading.Lock()
        self.next, self.count = 0, count
        self.ended, self.resubmitted = 0, 0
        self.in_flight = set()  # numbers of the jobs that were started and have not ended
        self.failures = []
        self.stopping = False
        self.results = {}       # job number -> tokens; all tokens of a job must be equal
        self.threads = [threading.Thread(target=self.work, args=(t,)) for t in range(threads)]
        for t in self.threads:
            t.start()

    def take(self):
        with self.lock:
            if self.stopping or (self.count is not None and self.next >= self.count):
                return None
            self.next += 1
            self.in_flight.add(self.next - 1)
            return self.next - 1

    def jobs_under_way(self):
        with self.lock:
            return set(self.in_flight)

    def wait_ended(self, numbers):
        """Wait until these jobs have ended. A job that loses its workers three times in a row without progress is not
        retried, so the next loss must wait for the jobs of the previous loss."""
        eventually(lambda: not numbers & self.jobs_under_way() or self.failures, 200, "the jobs that lost their workers")

    def work(self, name):
        client = self.connect(self.endpoint)
        try:
            while (i := self.take()) is not None:
                self.one(client, i)
        except Exception as e:
            self.failures.append(f"client {name}: {type(e).__name__}: {e}")
        finally:
            client.close()

    def one(self, client, number):
        which = number % len(self.jobs)
        prompt, params = self.jobs[which]
        got = self.run_job(client, prompt, params, f"{id(self)}-{number}")
        with self.lock:
            self.ended += 1
            self.in_flight.remove(number)
            before = self.results.setdefault(which, got)
            if before != got:
                self.failures.append(f"job {number}: other tokens than before: {got} instead of {before}")

    def run_job(self, client, prompt, params, key):
        """Submit the job until it is done. A restarted controller has lost it; the key makes a second submit safe."""
        end = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end:
            job = client.submit(prompt, stream=False, key=key, on_disconnect="keep", **params)
            while time.monotonic() < end:
                try:
                    reply = client.recv(job.request_id, RETRY_S)
                except TimeoutError:
                    self.resubmitted += 1
                    break
                except JobError as e:
                    # The controller is about to end, or has no worker yet. The error of a job that lost its workers
                    # is not retried.
                    if e.code in ("E_INTERNAL", "E_NOT_READY") and "were lost" not in str(e):
                        time.sleep(0.1)
                        break
                    raise Lost(f"{key}: {e}") from None
                if reply["op"] == "done":
                    return [o["tokens"] for o in reply["outputs"]]
        raise Lost(f"{key} did not end within {GIVE_UP_S} s")

    def stop(self):
        self.stopping = True
        self.join()

    def join(self):
        for t in self.threads:
            t.join()

    def check(self, known):
        assert not self.failures, self.failures[:5]
        for which, got in self.results.items():
            assert got == known[which], f"job {which}: {got} instead of {known[which]}"


def undisturbed(endpoint, jobs):
    """Return the tokens of the jobs without a disturbance: {number: tokens}."""
    with JobClient(endpoint) as c:
        in_flight = [c.submit(p, stream=False, **params) for p, params in jobs]
        return {i: tokens_of(j.done()) for i, j in enumerate(in_flight)}
