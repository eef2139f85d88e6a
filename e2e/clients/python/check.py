"""Calls a server with the client that openapi-python-client made: python check.py ADDRESS KEY."""

import sys
import time
import traceback

from redrive_client import AuthenticatedClient
from redrive_client.api.dead_letters import export_dead_letters, get_dead_letter, import_dead_letters, list_dead_letters
from redrive_client.api.deliveries import get_delivery, list_deliveries
from redrive_client.api.events import find_events, send_event
from redrive_client.api.replays import get_replay, start_replay
from redrive_client.models import (
    Accepted,
    AttemptJson,
    DeliveriesResponse,
    DeliveryJson,
    Envelope,
    ErrorBody,
    EventsResponse,
    ImportResponse,
    LettersResponse,
    NewReplayRequest,
    ReplayJson,
    ReplaySurveyJson,
)
from redrive_client.types import File

TYPE = "orders.python"
client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])


def until(ask, is_done):
    """Asks until the answer is what it should be, for at most 20 seconds."""
    end = time.monotonic() + 20
    while not is_done(answer := ask()):
        assert time.monotonic() < end, f"still {answer}"
        time.sleep(0.05)
    return answer


def dead_deliveries():
    answer = list_deliveries.sync(client=client, type_=TYPE, service="billing")
    assert isinstance(answer, DeliveriesResponse), answer
    return [delivery for delivery in answer.deliveries if delivery.state.value == "dead"]


def sends_an_event():
    answer = send_event.sync(TYPE, client=client, body={"order": 1})
    assert isinstance(answer, Accepted), answer
    assert answer.deliveries == 2 and answer.duplicate is False, answer
    found = find_events.sync(answer.receipt, client=client)
    assert isinstance(found, EventsResponse), found
    assert [event.receipt for event in found.events] == [answer.receipt], found


def lists_deliveries():
    (delivery,) = until(dead_deliveries, lambda found: len(found) == 1)
    assert isinstance(delivery, DeliveryJson), delivery
    assert delivery.service == "billing" and delivery.attempts == 1, delivery
    assert delivery.death.code == "UNPROCESSABLE", delivery


def gets_a_delivery_with_its_attempts():
    delivery = get_delivery.sync(dead_deliveries()[0].id, client=client)
    assert isinstance(delivery, DeliveryJson), delivery
    (attempt,) = delivery.stories
    assert isinstance(attempt, AttemptJson), attempt
    assert attempt.attempt == 1 and attempt.end.value == "failed" and attempt.status == 422, attempt
    assert attempt.category.value == "permanent" and attempt.started_at.year > 2000, attempt
    assert attempt.verdict.is_.value == "dead" and attempt.verdict.tier.value == "dead", attempt


def lists_and_gets_dead_letters():
    answer = list_dead_letters.sync(client=client, type_=TYPE)
    assert isinstance(answer, LettersResponse), answer
    (letter,) = answer.dead_letters
    assert letter.event_type == TYPE and letter.code == "UNPROCESSABLE" and letter.attempts == 1, letter
    envelope = get_dead_letter.sync(letter.id, client=client)
    assert isinstance(envelope, Envelope), envelope
    assert envelope.consumer_service == "billing" and envelope.retry_attempts[0].http_status == 422, envelope


def exports_and_imports_dead_letters():
    lines = export_dead_letters.sync(client=client, type_=TYPE)
    assert isinstance(lines, str) and lines.count("\n") == 1, lines
    answer = import_dead_letters.sync(client=client, body=File(payload=lines.encode()))
    assert isinstance(answer, ImportResponse), answer
    assert answer.imported + answer.known == 1, answer


def replays_dead_letters():
    letter = dead_deliveries()[0].id
    survey = start_replay.sync(client=client, body=NewReplayRequest(letters=[letter], dry_run=True))
    assert isinstance(survey, ReplaySurveyJson), survey
    assert survey.letters == 1, survey
    begun = start_replay.sync(client=client, body=NewReplayRequest(letters=[letter], to="ledger", note="checked"))
    assert isinstance(begun, ReplayJson), begun
    replay = until(lambda: get_replay.sync(begun.id, client=client), lambda replay: replay.state.value == "done")
    assert isinstance(replay, ReplayJson), replay
    assert (replay.total, replay.delivered, replay.to, replay.note) == (1, 1, "ledger", "checked"), replay


def reads_an_error():
    answer = get_delivery.sync("0" * 32, client=client)
    assert isinstance(answer, ErrorBody), answer
    assert answer.error.code.value == "DELIVERY_NOT_FOUND" and answer.error.message, answer


failed = False
for step in [
    sends_an_event,
    lists_deliveries,
    gets_a_delivery_with_its_attempts,
    lists_and_gets_dead_letters,
    exports_and_imports_dead_letters,
    replays_dead_letters,
    reads_an_error,
]:
    name = step.__name__.replace("_", " ")
    try:
        step()
        print(f"test python: {name} ... ok")
    except Exception:
        failed = True
        print(f"test python: {name} ... FAILED\n{traceback.format_exc()}")
sys.exit(failed)
