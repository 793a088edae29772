"""What the official client must be able to do with `arpo serve`: python check.py URL KEY."""

import base64
import struct
import sys
import time
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor

import openai


def png(number):
    """A small image that differs by its number."""
    width, height = 112, 84
    rows = b"".join(
        b"\0" + bytes((x * number + y * c) % 256 for x in range(width) for c in (1, 2, 3)) for y in range(height)
    )
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def image(number):
    url = "data:image/png;base64," + base64.b64encode(png(number)).decode()
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}}


def messages(*numbers):
    turns = [{"role": "user", "content": [image(number)]} for number in numbers]
    answers = [{"role": "assistant", "content": "Action: wait()"}] * len(turns)
    both = [message for pair in zip(turns, answers) for message in pair][:-1]
    return [{"role": "system", "content": "GUI agent"}, {"role": "user", "content": "Open the mail."}, *both]


def refused(kind, call, contains):
    try:
        call()
    except kind as error:
        assert contains in str(error), error
        return error
    raise AssertionError(f"{kind.__name__} expected: {contains}")


def main(url, key):
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)
    create = client.chat.completions.create
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model

    # one response, several images, seeds
    whole = create(model=model, messages=messages(1, 2, 3), max_tokens=24, seed=5, temperature=1.0)
    text = whole.choices[0].message.content
    assert text and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    again = create(model=model, messages=messages(1, 2, 3), max_completion_tokens=24, seed=5, temperature=1.0)
    assert again.choices[0].message.content == text
    assert again.usage.prompt_tokens_details.cached_tokens > 0
    print(f"a response to three images: {text!r}")

    # streaming
    stream = create(
        model=model, messages=messages(1, 2, 3), max_tokens=24, seed=5, temperature=1.0, stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text, streamed
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == whole.choices[0].finish_reason and set(reasons[:-1]) == {None}
    print(f"a stream of {len(chunks)} chunks gives the same")

    # several choices, log-probabilities, stop
    several = create(
        model=model, messages=messages(4), max_tokens=8, n=3, seed=1, temperature=1.0, logprobs=True, top_logprobs=2
    )
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    for choice in several.choices:
        for entry in choice.logprobs.content:
            assert entry.logprob <= 0 and len(entry.top_logprobs) == 2
            assert bytes(entry.bytes).decode() == entry.token
    greedy = create(model=model, messages=messages(4), max_tokens=24, temperature=0).choices[0].message.content
    stop = greedy[4:7]
    stopped = create(model=model, messages=messages(4), max_tokens=24, temperature=0, stop=[stop]).choices[0]
    assert stopped.finish_reason == "stop" and stopped.message.content == greedy[: greedy.index(stop)]
    ids = create(
        model=model, messages=messages(4), max_tokens=4, temperature=0,
        extra_body={"return_token_ids": True, "return_tokens_as_token_ids": True, "ignore_eos": True}, logprobs=True,
    )
    assert len(ids.choices[0].token_ids) == 4 and len(ids.prompt_token_ids) == ids.usage.prompt_tokens
    assert ids.choices[0].logprobs.content[0].token == f"token_id:{ids.choices[0].token_ids[0]}"
    print("three choices, log-probabilities, stop strings, token ids")

    # errors have the classes of the client
    ask = lambda **more: create(**{"model": model, "messages": messages(1), "max_tokens": 4, **more})
    refused(openai.AuthenticationError, lambda: client.with_options(api_key="other").models.list(), "API key")
    refused(openai.NotFoundError, lambda: ask(model="gpt-4o"), "is not served here")
    error = refused(openai.BadRequestError, lambda: ask(temperature=-1), "expected a number from 0 to 100")
    assert error.param == "temperature" and error.type == "invalid_request_error"
    error = refused(openai.BadRequestError, lambda: ask(max_tokens=10**9), "together")
    assert error.code == "context_length_exceeded"
    refused(openai.BadRequestError, lambda: ask(tools=[{"type": "function", "function": {"name": "f"}}]), "tools")
    bad = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]
    refused(openai.BadRequestError, lambda: ask(messages=bad), "not a data URL")
    refused(openai.BadRequestError, lambda: ask(n=17), "expected a number from 1 to 16")
    print("errors arrive as the client's own exceptions")

    # more than there is room for: some are refused with 429, and the client's own retries bring all of them through
    patient = client.with_options(max_retries=20)
    long = lambda seed: patient.chat.completions.create(
        model=model, messages=messages(seed), max_tokens=60, seed=seed, extra_body={"ignore_eos": True}
    )
    with ThreadPoolExecutor(40) as pool:
        done = list(pool.map(long, range(40)))
    assert all(one.usage.completion_tokens == 60 for one in done)
    print("40 requests at a time, with room for 16")

    # clients that go away
    for number in range(20):
        stream = create(model=model, messages=messages(number), max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    deadline = time.monotonic() + 30
    while True:
        request = urllib.request.Request(url.removesuffix("/v1") + "/metrics", headers={"Authorization": f"Bearer {key}"})
        text = urllib.request.urlopen(request, timeout=10).read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        held = [values[f"arpo_serve_{name}"] for name in ("requests_running", "requests_waiting", "cache_pages_in_use")]
        if held == ["0", "0", "0"]:
            break
        assert time.monotonic() < deadline, held
        time.sleep(0.1)
    assert int(values["arpo_serve_disconnected_total"]) >= 20
    print("20 streams were closed early: nothing runs any more")
    print(f"openai {openai.__version__}: all of it works")


main(*sys.argv[1:])
