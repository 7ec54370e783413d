"""Sampling parameters, one by one, compared with the model's output without them."""

import math

import pytest

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def plain(service):
    """60 greedy tokens with their log-probabilities: the reference for the other tests."""
    with service.client() as c:
        return c.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, logprobs=3)


def contains(tokens, part):
    return any(tokens[i:i + len(part)] == part for i in range(len(tokens)))


# --- length ---

def test_max_tokens_ends_with_length(client):
    done = client.generate(PROMPT, max_tokens=7, temperature=0, ignore_eos=True)
    assert len(done.tokens) == 7
    assert done.finish_reason == "length"


def test_without_max_tokens_the_context_is_filled(stories):
    with stories.client() as c:
        done = c.generate(PROMPT, temperature=0, ignore_eos=True)
        assert done.usage["prompt_tokens"] + done.usage["completion_tokens"] == c.status()["max_context"]
        assert done.finish_reason == "length"


def test_the_end_token_stops(client):
    done = client.generate("12 + 10 =", temperature=0, max_tokens=200)
    assert done.finish_reason == "stop"
    assert len(done.tokens) == done.usage["completion_tokens"] < 200
    assert done.outputs[0]["stop_reason"] is None or done.outputs[0]["stop_reason"] == done.tokens[-1]
    assert "<|" not in done.text


def test_ignore_eos_goes_on(client):
    ended = client.generate("12 + 10 =", temperature=0, max_tokens=200)
    done = client.generate("12 + 10 =", temperature=0, max_tokens=len(ended.tokens) + 20, ignore_eos=True)
    assert done.finish_reason == "length"
    assert done.tokens[:len(ended.tokens)] == ended.tokens


def test_min_tokens_puts_the_end_off(client):
    ended = client.generate("12 + 10 =", temperature=0, max_tokens=200)
    least = len(ended.tokens) + 10
    done = client.generate("12 + 10 =", temperature=0, max_tokens=200, min_tokens=least)
    assert len(done.tokens) >= least
    assert done.tokens[:len(ended.tokens) - 1] == ended.tokens[:-1]
    assert ended.tokens[-1] not in done.tokens[:least - 1]


# --- stop ---

def test_a_stop_string_is_cut_off(client, plain):
    stop = plain.text[20:24]
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, stop=[stop])
    assert done.text == plain.text[:plain.text.index(stop)]
    assert done.finish_reason == "stop"
    assert done.outputs[0]["stop_reason"] == stop


def test_include_stop_str_in_output_leaves_it(client, plain):
    stop = plain.text[20:24]
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, stop=stop,
                           include_stop_str_in_output=True)
    assert done.text == plain.text[:plain.text.index(stop) + len(stop)]


def test_streamed_text_never_shows_a_part_of_the_stop_string(client, plain):
    stop = plain.text[20:30]
    job = client.submit(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, stop=[stop])
    done = job.done()
    assert "".join(d["text"] for d in job.deltas) == done.text == plain.text[:plain.text.index(stop)]


def test_the_first_of_several_stop_strings_counts(client, plain):
    stops = [plain.text[40:46], plain.text[15:20]]
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, stop=stops)
    assert done.text == plain.text[:min(plain.text.index(s) for s in stops)]


def test_a_stop_string_that_does_not_come_changes_nothing(client, plain):
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, stop=["\u2603 never generated"])
    assert (done.text, done.finish_reason) == (plain.text, "length")


def test_stop_token_ids_stop(client, plain):
    stop = plain.tokens[9]
    at = plain.tokens.index(stop)
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, stop_token_ids=[stop])
    assert (done.finish_reason, done.outputs[0]["stop_reason"]) == ("stop", stop)
    assert done.tokens == plain.tokens[:at + 1]     # the stop token is part of the output, without text
    assert plain.text.startswith(done.text) and len(done.text) < len(plain.text)


# --- choice of tokens ---

def test_temperature_0_is_greedy_and_repeatable(client, plain):
    assert client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True).tokens == plain.tokens


def test_top_k_1_is_greedy(client, plain):
    done = client.generate(PROMPT, temperature=1.0, top_k=1, max_tokens=60, ignore_eos=True)
    assert done.tokens == plain.tokens


def test_a_tiny_top_p_is_greedy(client, plain):
    done = client.generate(PROMPT, temperature=1.0, top_p=1e-6, max_tokens=60, ignore_eos=True)
    assert done.tokens == plain.tokens


def test_min_p_1_is_greedy(client, plain):
    done = client.generate(PROMPT, temperature=1.0, min_p=1.0, max_tokens=60, ignore_eos=True)
    assert done.tokens == plain.tokens


def test_temperature_changes_the_text(client, plain):
    done = client.generate(PROMPT, temperature=1.5, top_k=0, top_p=1.0, seed=3, max_tokens=60, ignore_eos=True)
    assert done.tokens != plain.tokens


def test_the_same_seed_gives_the_same_tokens(client):
    sampled = dict(temperature=1.0, top_k=0, top_p=1.0, seed=42, max_tokens=40, ignore_eos=True)
    assert client.generate(PROMPT, **sampled).tokens == client.generate(PROMPT, **sampled).tokens


def test_other_seeds_give_other_tokens(client):
    sampled = dict(temperature=1.2, top_k=0, top_p=1.0, max_tokens=40, ignore_eos=True)
    texts = {tuple(client.generate(PROMPT, seed=s, **sampled).tokens) for s in range(5)}
    assert len(texts) == 5


def test_without_a_seed_jobs_differ(client):
    sampled = dict(temperature=1.2, top_k=0, top_p=1.0, max_tokens=40, ignore_eos=True)
    assert client.generate(PROMPT, **sampled).tokens != client.generate(PROMPT, **sampled).tokens


def test_n_outputs_differ_and_are_repeatable(client):
    sampled = dict(n=4, temperature=1.2, top_k=0, top_p=1.0, seed=9, max_tokens=40, ignore_eos=True)
    a, b = client.generate(PROMPT, **sampled), client.generate(PROMPT, **sampled)
    assert [o["index"] for o in a.outputs] == [0, 1, 2, 3]
    assert len({tuple(o["tokens"]) for o in a.outputs}) == 4
    assert [o["tokens"] for o in a.outputs] == [o["tokens"] for o in b.outputs]
    assert a.usage["completion_tokens"] == sum(len(o["tokens"]) for o in a.outputs) == 160


def test_the_first_of_n_outputs_is_the_one_alone(client):
    sampled = dict(temperature=1.2, top_k=0, top_p=1.0, seed=9, max_tokens=40, ignore_eos=True)
    assert client.generate(PROMPT, n=4, **sampled).tokens == client.generate(PROMPT, n=1, **sampled).tokens


@pytest.mark.parametrize("penalty", [{"repetition_penalty": 3.0}, {"frequency_penalty": 2.0},
                                     {"presence_penalty": 2.0}], ids=lambda p: next(iter(p)))
def test_penalties_make_texts_repeat_less(client, penalty):
    keys = dict(temperature=1.0, top_k=0, top_p=1.0, n=16, seed=1, max_tokens=60, ignore_eos=True)

    def different(done):
        return sum(len(set(o["tokens"])) for o in done.outputs)
    assert different(client.generate(PROMPT, **keys, **penalty)) > different(client.generate(PROMPT, **keys))


def test_a_negative_penalty_makes_the_text_repeat_more(client, plain):
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, frequency_penalty=-2.0)
    assert len(set(done.tokens)) < len(set(plain.tokens))


# --- allowed and banned tokens ---

def test_a_logit_bias_of_100_forces_a_token(client):
    (token,) = client.tokenize("!")
    done = client.generate(PROMPT, temperature=0, max_tokens=5, ignore_eos=True, logit_bias={str(token): 100})
    assert done.tokens == [token] * 5


def test_a_logit_bias_of_minus_100_bans_a_token(client, plain):
    banned = plain.tokens[0]
    done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, logit_bias={str(banned): -100})
    assert banned not in done.tokens


def test_only_allowed_tokens_are_generated(client):
    allowed = sorted(set(client.tokenize(" dog cat happy.")))
    done = client.generate(PROMPT, temperature=1.0, seed=1, max_tokens=30, ignore_eos=True, allowed_token_ids=allowed)
    assert set(done.tokens) <= set(allowed)
    assert len(set(done.tokens)) > 1


def test_bad_words_are_not_generated(client, plain):
    def say(n):
        """Return n consecutive tokens of the greedy text that the tokenizer also gives for their text."""
        for i in range(len(plain.tokens) - n):
            ids = plain.tokens[i:i + n]
            text = client.detokenize(ids)
            if text and text == text.lstrip() and client.tokenize(text) == ids:
                return text, ids
        pytest.fail(f"no {n} such tokens in {plain.text!r}")

    for n in (1, 2):
        word, ids = say(n)
        done = client.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True, bad_words=[word])
        assert contains(plain.tokens, ids)
        assert not contains(done.tokens, ids)


# --- log-probabilities ---

def test_logprobs_have_the_requested_number_of_alternatives(plain):
    assert len(plain.logprobs) == len(plain.tokens)
    for token, entry in zip(plain.tokens, plain.logprobs):
        assert entry["token"] == token
        assert len(entry["top"]) == 3
        assert entry["rank"] == 1 and entry["top"][0]["token"] == token     # greedy
        likely = [t["logprob"] for t in entry["top"]]
        assert likely == sorted(likely, reverse=True)
        assert likely[0] == entry["logprob"] <= 0
        assert sum(math.exp(x) for x in likely) <= 1 + 1e-5


def test_logprobs_add_up(plain):
    assert plain.cumulative_logprob == pytest.approx(sum(e["logprob"] for e in plain.logprobs), abs=1e-3)


def test_logprobs_0_gives_the_chosen_token_alone(client):
    done = client.generate(PROMPT, temperature=0, max_tokens=5, logprobs=0)
    assert [len(e["top"]) for e in done.logprobs] == [0] * len(done.tokens)


def test_logprobs_are_absent_by_default(client):
    assert client.generate(PROMPT, max_tokens=3).logprobs is None


def test_64_alternatives_of_a_whole_distribution(client):
    done = client.generate(PROMPT, temperature=0, max_tokens=2, logprobs=64)
    assert [len(e["top"]) for e in done.logprobs] == [64] * len(done.tokens)
    assert len({t["token"] for t in done.logprobs[0]["top"]}) == 64


def test_logprobs_come_with_the_deltas_too(client):
    job = client.submit(PROMPT, temperature=0, max_tokens=10, logprobs=1)
    done = job.done()
    assert sum((d["logprobs"] for d in job.deltas), []) == done.logprobs


def test_prompt_logprobs_are_of_the_prompts_tokens(client):
    ids = client.tokenize(PROMPT, add_special=True)
    done = client.generate(PROMPT, temperature=0, max_tokens=1, prompt_logprobs=2)
    entries = done.reply["prompt_logprobs"]
    assert entries[0] is None
    assert [e["token"] for e in entries[1:]] == ids[1:]
    assert all(len(e["top"]) == 2 and e["logprob"] <= 0 and e["rank"] >= 1 for e in entries[1:])


def test_prompt_logprobs_agree_with_those_of_the_same_tokens_generated(client, plain):
    whole = client.tokenize(PROMPT, add_special=True) + plain.tokens
    entries = client.generate(tokens=whole, max_tokens=1, prompt_logprobs=0).reply["prompt_logprobs"]
    assert [e["logprob"] for e in entries[-len(plain.tokens):]] == [e["logprob"] for e in plain.logprobs]


def test_special_tokens_are_skipped_by_default(client):
    hidden = client.generate("12 + 10 =", temperature=0, max_tokens=40)
    shown = client.generate("12 + 10 =", temperature=0, max_tokens=40, skip_special_tokens=False, ignore_eos=True)
    assert "<|" not in hidden.text
    assert "<|" in shown.text
