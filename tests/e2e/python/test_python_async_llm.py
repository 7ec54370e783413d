"""quern.AsyncLLM: the outputs of LLM, while they are generated."""

import asyncio

import pytest

import quern
from quern import AsyncEngineArgs, AsyncLLM, LLM, RequestOutputKind, SamplingParams
from service import BIN, DEMO

PROMPT = "Once upon a time"


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 150))


async def outputs_of(llm, params, prompt=PROMPT):
    return [o async for o in llm.generate(prompt, params)]


def test_its_outputs_are_those_of_llm(service):
    def params(**fields):
        return SamplingParams(n=2, seed=5, max_tokens=40, logprobs=1, **fields)
    with LLM(address=service.jobs) as llm:
        whole = llm.generate(PROMPT, params(), use_tqdm=False)[0]

    async def main():
        async with AsyncLLM(address=service.jobs) as llm:
            return await asyncio.gather(*(outputs_of(llm, params(output_kind=k)) for k in RequestOutputKind))
    cumulative, delta, final = run(main())
    assert len(final) == 1 and len(cumulative) == len(delta) > 2
    for last in (cumulative[-1], final[0]):
        assert last.outputs == whole.outputs and last.prompt_token_ids == whole.prompt_token_ids and last.finished
    for wanted in whole.outputs:
        grown = [o for r in cumulative for o in r.outputs if o.index == wanted.index]
        for before, after in zip(grown, grown[1:]):
            assert after.text.startswith(before.text) and after.token_ids[:len(before.token_ids)] == before.token_ids
        new = [o for r in delta for o in r.outputs if o.index == wanted.index]
        assert "".join(o.text for o in new) == wanted.text
        assert [t for o in new for t in o.token_ids] == wanted.token_ids
        assert [t for o in new for t in o.logprobs] == wanted.logprobs
        assert [o.finish_reason for o in new if o.finish_reason] == [wanted.finish_reason]
    assert not any(r.finished for r in cumulative[:-1])


def test_requests_are_aborted_and_cancelled(service):
    endless = SamplingParams(max_tokens=2000, n=8, ignore_eos=True)

    async def main():
        async with AsyncLLM(address=service.jobs) as llm:
            streams = llm.generate(PROMPT, endless, "one")
            await streams.__anext__()
            with pytest.raises(ValueError, match="'one' is in flight"):
                await llm.generate(PROMPT, endless, "one").__anext__()
            await llm.abort(["one", "another"])
            last = [o async for o in streams][-1]
            assert last.finished and {o.finish_reason for o in last.outputs} == {"abort"}
            left = llm.generate(PROMPT, endless, "two")
            await left.__anext__()
            await left.aclose()
            await llm.check_health()
            assert (await outputs_of(llm, SamplingParams(max_tokens=2, ignore_eos=True)))[-1].outputs[0].token_ids
            while any(j["state"] in ("queued", "running") for j in await llm.client.jobs()):
                await asyncio.sleep(0.05)
    run(main())


def test_a_full_queue_is_waited_for(start):
    s = start(DEMO, "--max-queued-jobs", 1, "--max-seqs", 1)

    async def main():
        async with AsyncLLM(address=s.jobs) as llm:
            return await asyncio.gather(*(outputs_of(llm, SamplingParams(max_tokens=3, seed=i)) for i in range(12)))
    assert all(o[-1].finished for o in run(main()))


def test_a_private_service_ends_with_it():
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(str(DEMO), bin=str(BIN), max_num_seqs=8))
    try:
        assert run(outputs_of(llm, SamplingParams(max_tokens=4)))[-1].finished
        assert run(llm.reset_prefix_cache())
    finally:
        llm.shutdown()
    with pytest.raises(quern.QuernError):
        quern.Client(llm.client.address, connect_timeout=1).ping()
