"""The process that splits and joins long texts."""

import functools
import os
import signal

import pytest

from tfk_transformer.apps.server.bodies import InvalidValue, parse_body
from tfk_transformer.apps.server.protocols.tensors import InferRequest
from tfk_transformer.apps.server.text_process import TextProcess
from tfk_transformer.inference.conveyor import document_road, text_road
from tfk_transformer.text.results import Hypothesis, Translation
from tfk_transformer.text.road import drive

TEXT = "Seven. Nine. Forty-two."
LONG_WORD = 40  # characters of a sentence that is too long for the model of the road


def upper_case(sentences):
    return [Translation(text, [Hypothesis(text.upper(), 0.0)]) for text in sentences.texts]


def text_maker():
    return functools.partial(text_road, [TEXT], [""], "en", LONG_WORD)


def drive_remote(step):
    sentences, result = step(None)
    while sentences is not None:
        sentences, result = step(upper_case(sentences))
    return result


@pytest.fixture
def texts():
    process = TextProcess()
    yield process
    process.stop()


def test_remote_text_equals_local(texts):
    assert drive_remote(texts.road(text_maker())) == drive(text_maker()(), upper_case)


def test_remote_document_equals_local(texts):
    make = functools.partial(document_road, f"<p>{TEXT}</p>", "html", "en", LONG_WORD)
    assert drive_remote(texts.road(make)) == drive(make(), upper_case)


def test_functions_run_in_other_process(texts):
    assert texts.call(os.getpid) == texts._process.pid


def test_errors_of_functions_arrive(texts):
    with pytest.raises(InvalidValue, match="body: expected the fields that /docs shows"):
        texts.call(functools.partial(parse_body, InferRequest, b"[]"))


def test_errors_of_roads_arrive(texts):
    make = functools.partial(document_road, TEXT, "pdf", "en", LONG_WORD)
    with pytest.raises(ValueError, match="^format: expected one of "):
        texts.road(make)(None)


def test_roads_take_turns(texts):
    steps = [texts.road(text_maker()) for _ in range(3)]
    rounds = [step(None)[0] for step in steps]
    results = [
        step(upper_case(sentences))[1] for step, sentences in zip(steps, rounds, strict=True)
    ]
    assert results == [drive(text_maker()(), upper_case)] * 3


def test_signals_of_the_server_do_not_end_it(texts):
    step = texts.road(text_maker())
    sentences, _ = step(None)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(texts._process.pid, number)
    assert step(upper_case(sentences))[1] == drive(text_maker()(), upper_case)


def test_lost_process_is_replaced(texts):
    step = texts.road(text_maker())
    sentences, _ = step(None)
    os.kill(texts._process.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError, match="has ended"):
        step(upper_case(sentences))
    assert drive_remote(texts.road(text_maker())) == drive(text_maker()(), upper_case)


def test_abandoned_road_is_dropped(texts):
    abandoned = texts.road(text_maker())
    sentences, _ = abandoned(None)
    del abandoned
    drive_remote(texts.road(text_maker()))
    first_number = 0
    with pytest.raises(ConnectionError, match="has ended"):
        texts._send(first_number, upper_case(sentences)).result()
