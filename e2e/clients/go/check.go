// Calls a server with the client that oapi-codegen made: check ADDRESS KEY.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"redrive/check/redrive"
)

const eventType = "orders.go"

var (
	ctx    = context.Background()
	client *redrive.ClientWithResponses
)

func pointer[T any](value T) *T { return &value }

func must(is bool, got any) {
	if !is {
		panic(fmt.Sprintf("%+v", got))
	}
}

// answered gives what was answered, or ends the step.
func answered[T any](answer T, err error) T {
	must(err == nil, err)
	return answer
}

// until asks until there is an answer, for at most 20 seconds.
func until[T any](ask func() *T) *T {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if answer := ask(); answer != nil {
			return answer
		}
	}
	panic("it took too long")
}

func deadDelivery() *redrive.DeliveryJson {
	params := &redrive.ListDeliveriesParams{Type: pointer(eventType), Service: pointer("billing")}
	answer := answered(client.ListDeliveriesWithResponse(ctx, params))
	must(answer.JSON200 != nil, string(answer.Body))
	for _, delivery := range answer.JSON200.Deliveries {
		if delivery.State == redrive.DeliveryStateJsonDead {
			return &delivery
		}
	}
	return nil
}

func sendsAnEvent() {
	body := map[string]any{"order": 1}
	answer := answered(client.SendEventWithResponse(ctx, eventType, nil, body))
	must(answer.JSON202 != nil, string(answer.Body))
	must(answer.JSON202.Deliveries == 2 && !answer.JSON202.Duplicate, *answer.JSON202)
	found := answered(client.FindEventsWithResponse(ctx, answer.JSON202.Receipt))
	must(found.JSON200 != nil, string(found.Body))
	must(len(found.JSON200.Events) == 1 && found.JSON200.Events[0].Receipt == answer.JSON202.Receipt, *found.JSON200)
}

func listsDeliveries() {
	delivery := until(deadDelivery)
	must(delivery.Attempts == 1 && delivery.Death.Code == "UNPROCESSABLE", *delivery)
}

func getsADeliveryWithItsAttempts() {
	answer := answered(client.GetDeliveryWithResponse(ctx, until(deadDelivery).Id))
	must(answer.JSON200 != nil, string(answer.Body))
	attempts := *answer.JSON200.Stories
	must(len(attempts) == 1, attempts)
	attempt := attempts[0]
	must(attempt.End == redrive.AttemptJsonEndFailed && *attempt.Status == 422, attempt)
	must(*attempt.Category == redrive.CategoryPermanent && attempt.StartedAt.Year() > 2000, attempt)
	must(attempt.Verdict.Is == redrive.VerdictIsDead && *attempt.Verdict.Tier == redrive.TierDead, attempt)
}

func listsAndGetsDeadLetters() {
	params := &redrive.ListDeadLettersParams{Type: pointer(eventType)}
	answer := answered(client.ListDeadLettersWithResponse(ctx, params))
	must(answer.JSON200 != nil, string(answer.Body))
	letters := answer.JSON200.DeadLetters
	must(len(letters) == 1 && letters[0].Code == "UNPROCESSABLE", letters)
	letter := answered(client.GetDeadLetterWithResponse(ctx, letters[0].Id, nil))
	must(letter.JSON200 != nil, string(letter.Body))
	envelope := answered(letter.JSON200.AsEnvelope())
	must(envelope.ConsumerService == "billing" && *envelope.RetryAttempts[0].HttpStatus == 422, envelope)
}

func replaysDeadLetters() {
	body := redrive.NewReplayRequest{
		Letters: &[]string{until(deadDelivery).Id}, To: pointer("ledger"), Note: pointer("checked"),
	}
	begun := answered(client.StartReplayWithResponse(ctx, body))
	must(begun.JSON201 != nil, string(begun.Body))
	replay := until(func() *redrive.ReplayJson {
		answer := answered(client.GetReplayWithResponse(ctx, begun.JSON201.Id))
		must(answer.JSON200 != nil, string(answer.Body))
		if answer.JSON200.State != redrive.ReplayStateDone {
			return nil
		}
		return answer.JSON200
	})
	must(replay.Total == 1 && replay.Delivered == 1, *replay)
	must(*replay.To == "ledger" && *replay.Note == "checked", *replay)
}

func readsAnError() {
	answer := answered(client.GetDeliveryWithResponse(ctx, strings.Repeat("0", 32)))
	must(answer.JSON404 != nil, string(answer.Body))
	must(answer.JSON404.Error.Code == redrive.DELIVERYNOTFOUND, *answer.JSON404)
}

// run says whether a step was without a fault.
func run(name string, step func()) (ok bool) {
	defer func() {
		if fault := recover(); fault != nil {
			fmt.Printf("test go: %s ... FAILED\n%v\n", name, fault)
		}
	}()
	step()
	fmt.Printf("test go: %s ... ok\n", name)
	return true
}

func main() {
	withKey := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	}
	client = answered(redrive.NewClientWithResponses(os.Args[1], redrive.WithRequestEditorFn(withKey)))
	ok := run("sends an event", sendsAnEvent)
	ok = run("lists deliveries", listsDeliveries) && ok
	ok = run("gets a delivery with its attempts", getsADeliveryWithItsAttempts) && ok
	ok = run("lists and gets dead letters", listsAndGetsDeadLetters) && ok
	ok = run("replays dead letters", replaysDeadLetters) && ok
	ok = run("reads an error", readsAnError) && ok
	if !ok {
		os.Exit(1)
	}
}
