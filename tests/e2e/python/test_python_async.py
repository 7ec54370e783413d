"""quern.AsyncClient: like Client, but awaited."""

import asyncio
import os

import pytest

import quern
from service import DEMO, eventually, marked

PROMPT = "Once upon a time"
# Far longer than a test waits: only a cancel ends it.
ENDLESS = {"max_tokens": 2000, "n": 64, "ignore_eos": True}


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 150))


def test_many_jobs_at_once(service, py):
    async def main():
        async with quern.AsyncClient(service.jobs) as c:
            return await asyncio.gather(*(c.generate(f"{PROMPT} {i}", {"max_tokens": 6, "seed": i}) for i in range(200)))
    results = run(main())
    for i in (0, 57, 199):
        assert results[i].outputs == py.generate(f"{PROMPT} {i}", {"max_tokens": 6, "seed": i}).outputs


def test_a_stream_and_calls(service, py):
    async def main():
        async with quern.AsyncClient(service.jobs) as c:
            job = c.submit(PROMPT, quern.SamplingParams(n=2, max_tokens=30, seed=4))
            assert job.id is None
            deltas = [d async for d in job]
            result = await job.result()
            assert await job.accepted() == job.id == result.job and job.prompt_tokens == 4
            for o in result.outputs:
                assert "".join(d.text for d in deltas if d.index == o.index) == o.text
            assert job.offsets == [30, 30]
            assert [d async for d in c.attach(job.id, 30)] == []
            assert (await c.result(job.id)).outputs == result.outputs
            ids = await c.tokenize("One two")
            assert await c.detokenize(ids) == "".join(await c.pieces(ids)) == "One two"
            assert await c.tokenize_chat([{"role": "user", "content": "Hi"}]) == \
                py.tokenize_chat([{"role": "user", "content": "Hi"}])
            assert (await c.ping())["ready"] and (await c.status())["ready"] and len(await c.workers()) == 1
            assert job.id in [row["job"] for row in await c.jobs()]
            with pytest.raises(quern.BadRequest) as e:
                await c.generate(PROMPT, {"temperature": -1})
            assert e.value.field == "temperature"
            with pytest.raises(quern.NoSuchJob):
                await c.cancel("0" * 32)
    run(main())


def test_a_cancelled_task_cancels_its_job(service, py):
    async def main():
        async with quern.AsyncClient(service.jobs) as c:
            task = asyncio.ensure_future(c.generate(PROMPT, ENDLESS, user="cancelled"))
            while not [r for r in await c.jobs() if r.get("user") == "cancelled" and r["state"] == "running"]:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not [r for r in await c.jobs() if r.get("user") == "cancelled" and r["cancelled"]]:
                await asyncio.sleep(0.01)
    run(main())


def test_a_time_limit(service):
    async def main():
        async with quern.AsyncClient(service.jobs) as c:
            async with c.submit(PROMPT, ENDLESS, stream=False, timeout=0.05) as job:
                with pytest.raises(quern.RequestTimeout, match="within 0.05 s"):
                    await job.result()
        async with quern.AsyncClient("tcp://127.0.0.1:1", connect_timeout=0.2) as c:
            with pytest.raises(quern.ConnectionLost):
                await c.ping()
        async with quern.AsyncClient("tcp://127.0.0.1:1", timeout=0.2) as c:
            with pytest.raises(quern.RequestTimeout):
                await c.ping()
    run(main())


def test_a_loop_that_ends_before_its_jobs(service):
    async def main():
        c = quern.AsyncClient(service.jobs)
        job = c.submit(PROMPT, {"max_tokens": 2000, "ignore_eos": True})
        await job.__anext__()
        return c
    c = run(main())

    async def end():
        assert (await c.ping())["ready"]
        await c.aclose()
    run(end())
    service.idle()


@pytest.mark.parametrize("victim", ["quern-contr", "quern-worker"])
def test_streams_survive_kill_9(start, victim):
    params = {"max_tokens": 600, "seed": 5, "ignore_eos": True}
    s = start(DEMO)

    async def stream(c, i, killed):
        job, text = c.submit(f"{PROMPT} {i}", params), ""
        async for d in job:
            text += d.text
            if i == 3 and d.offset > 50 and not killed:
                killed.append(1)
                for pid, n in marked(s.mark).items():
                    if n.startswith(victim):
                        os.kill(pid, 9)
        assert text == (await job.result()).text
        return text

    async def main():
        async with quern.AsyncClient(s.jobs) as c:
            texts = await asyncio.gather(*(stream(c, i, []) for i in range(8)))
            again = await asyncio.gather(*(c.generate(f"{PROMPT} {i}", params) for i in range(8)))
            assert texts == [r.text for r in again]
    run(main())
    assert eventually(lambda: s.status()["ready"])
