//! Dapr files both ways, through the command itself.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Every policy and every target of the failure and retry strategy, as a rule book.
const BOOK: &str = r#"version: 1
dapr: { name: todo-resiliency, namespace: todo }

breakers:
  kafkaBreaker: { from: kafkaBreaker, reset: 60s }
  stateBreaker: { from: stateBreaker, reset: 30s }
  externalBreaker: { from: externalBreaker, reset: 120s }
  sidecarBreaker: { from: sidecarBreaker, reset: 15s }

dependencies:
  kafka:
    kind: kafka
    dapr: { component: pubsub-kafka }
    retry: standard
    timeout: default
    breaker: kafkaBreaker
  kafka-inbound:
    kind: kafka
    dapr: { component: pubsub-kafka, direction: inbound }
    retry: standard
    timeout: slow
    breaker: none
  redis:
    kind: redis
    dapr: { component: statestore-redis }
    retry: aggressive
    timeout: fast
    breaker: stateBreaker
  postgres:
    kind: postgres
    dapr: { component: statestore-postgres }
    retry: standard
    timeout: default
    breaker: stateBreaker
  email:
    kind: smtp
    dapr: { component: binding-smtp-email }
    retry: patient
    timeout: slow
    breaker: externalBreaker
  webhook:
    kind: webhook
    dapr: { component: binding-http-webhook }
    retry: patient
    timeout: slow
    breaker: externalBreaker
  todo-api:
    kind: invoke
    dapr: { app: todo-api }
    retry: aggressive
    timeout: default
    breaker: sidecarBreaker
  notification-svc:
    kind: invoke
    dapr: { app: notification-svc }
    retry: standard
    timeout: default
    breaker: sidecarBreaker

services:
  recurrence-svc:
    target: { http: "https://recurrence.example.com/events" }
    depends_on: kafka
    events:
      - { type: todo.task.completed, retry: critical, timeout: 15s }
"#;

/// The strategy's own file, with the trips on the failure that the catalog means.
const FILE: &str = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata:
  name: todo-resiliency
  namespace: todo
spec:
  policies:
    retries:
      aggressive:
        policy: exponential
        maxInterval: 5s
        maxRetries: 3
      standard:
        policy: exponential
        maxInterval: 30s
        maxRetries: 5
      patient:
        policy: exponential
        maxInterval: 60s
        maxRetries: 8
      critical:
        policy: exponential
        maxInterval: 120s
        maxRetries: 12
    timeouts:
      fast: 5s
      default: 15s
      slow: 30s
    circuitBreakers:
      kafkaBreaker:
        maxRequests: 1
        interval: 60s
        timeout: 60s
        trip: consecutiveFailures >= 5
      stateBreaker:
        maxRequests: 1
        interval: 30s
        timeout: 30s
        trip: consecutiveFailures >= 3
      externalBreaker:
        maxRequests: 2
        interval: 120s
        timeout: 120s
        trip: consecutiveFailures >= 5
      sidecarBreaker:
        maxRequests: 1
        interval: 15s
        timeout: 15s
        trip: consecutiveFailures >= 3
  targets:
    components:
      pubsub-kafka:
        outbound:
          retry: standard
          timeout: default
          circuitBreaker: kafkaBreaker
        inbound:
          retry: standard
          timeout: slow
      statestore-redis:
        outbound:
          retry: aggressive
          timeout: fast
          circuitBreaker: stateBreaker
      statestore-postgres:
        outbound:
          retry: standard
          timeout: default
          circuitBreaker: stateBreaker
      binding-smtp-email:
        outbound:
          retry: patient
          timeout: slow
          circuitBreaker: externalBreaker
      binding-http-webhook:
        outbound:
          retry: patient
          timeout: slow
          circuitBreaker: externalBreaker
    apps:
      todo-api:
        retry: aggressive
        timeout: default
        circuitBreaker: sidecarBreaker
      notification-svc:
        retry: standard
        timeout: default
        circuitBreaker: sidecarBreaker
";

fn redrive(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redrive")).args(args).output().expect("the command starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

/// A file of this test binary's own folder.
fn file(name: &str, text: &str) -> String {
    let path = path(name);
    fs::write(&path, text).expect("a test may write its own files");
    path.to_str().expect("UTF-8").to_owned()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("dapr-{name}"))
}

#[test]
fn the_strategys_book_is_exported_as_its_file() {
    let book = file("book.yaml", BOOK);
    let output = redrive(&["export", "dapr", "--rules", &book]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), FILE);
    let losses = stderr(&output);
    for loss in
        ["`initial`: Dapr", "`factor`: Dapr", "`jitter`: Dapr", "`window`: Dapr", "1 row of a service"]
    {
        assert!(losses.contains(loss), "{loss}\nin\n{losses}");
    }

    let output = redrive(&["export", "dapr", "--rules", &book, "--with-matching"]);
    assert!(stdout(&output).contains("httpStatusCodes: \"408,425,429,500,502-599\""), "{}", stdout(&output));
}

#[test]
fn the_file_is_imported_and_exported_unchanged() {
    let dapr = file("file.yaml", FILE);
    let book = path("imported.yaml").to_str().expect("UTF-8").to_owned();
    // What an earlier run left would be refused, as it should be.
    let _ = fs::remove_file(&book);
    let output = redrive(&["import", "dapr", &dapr, "-o", &book]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("window: 15m"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty());

    let checked = redrive(&["check", &book]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    let again = redrive(&["export", "dapr", "--rules", &book]);
    assert_eq!(stdout(&again), FILE);
    assert!(!stderr(&again).contains("jitter"), "{}", stderr(&again));

    let printed = redrive(&["import", "dapr", &dapr]);
    assert_eq!(stdout(&printed), fs::read_to_string(&book).expect("just written"));
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let dapr = file("file-to-import.yaml", FILE);
    let mine = file("mine.yaml", "mine\n");
    let output = redrive(&["import", "dapr", &dapr, "-o", &mine]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("exists: choose another file"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&mine).expect("still there"), "mine\n");

    // A file cannot be a folder.
    let nowhere = path("mine.yaml/book.yaml");
    let output = redrive(&["import", "dapr", &dapr, "-o", nowhere.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2), "a file that cannot be written is no refusal");
}

#[test]
fn what_is_wrong_is_shown_where_it_stands() {
    let bad = FILE.replace("trip: consecutiveFailures >= 5", "trip: consecutiveFailure >= 5");
    let output = redrive(&["import", "dapr", &file("bad.yaml", &bad)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).is_empty());
    let message = stderr(&output);
    for part in ["bad-trip", "never trips", "trip: consecutiveFailure >= 5", "^^^^"] {
        assert!(message.contains(part), "{part}\nin\n{message}");
    }

    let output = redrive(&["import", "dapr", &file("book-for-dapr.yaml", BOOK)]);
    assert_eq!(output.status.code(), Some(1), "a rule book is no Dapr file");
    let output = redrive(&["import", "dapr", "no-such-file.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let output = redrive(&["export", "dapr", "--rules", "no-such-file.yaml"]);
    assert_eq!(output.status.code(), Some(2));
}
