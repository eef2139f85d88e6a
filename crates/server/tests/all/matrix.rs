//! `redrive export matrix`: the tables of the todo services, row for row as their document has them.

use crate::run::{Folder, redrive};

const TABLES: &str = "\
### Notification Service

| Event | Retry Policy | Idempotency Pattern | DLQ | Circuit Breaker | Timeout |
|-------|-------------|--------------------|----|-----------------|---------|
| `todo.task.created` | `standard` | Event ID dedup (Redis, not available) | `_notification-svc.deadletter` | kafkaBreaker | 15s |
| `todo.task.completed` | `standard` | Event ID dedup (Redis, not available) | `_notification-svc.deadletter` | kafkaBreaker | 15s |
| `todo.task.priority-changed` | `standard` | Event ID dedup (Redis, not available) | `_notification-svc.deadletter` | kafkaBreaker | 15s |
| `todo.reminder.fired` | `critical` | Idempotent upsert (PostgreSQL) | `_notification-svc.deadletter` | kafkaBreaker | 30s |
| Email dispatch | `patient` | Event ID dedup (Redis, not available) | `_notification-svc.deadletter.email` | externalBreaker | 30s |
| SMS dispatch | `patient` | Event ID dedup (Redis, not available) | `_notification-svc.deadletter.sms` | externalBreaker | 15s |

### Analytics Service

| Event | Retry Policy | Idempotency Pattern | DLQ | Circuit Breaker | Timeout |
|-------|-------------|--------------------|----|-----------------|---------|
| `todo.task.created` | `standard` | Idempotent upsert (PostgreSQL) | `_analytics-svc.deadletter` | kafkaBreaker | 10s |
| `todo.task.completed` | `standard` | Idempotent upsert (PostgreSQL) | `_analytics-svc.deadletter` | kafkaBreaker | 10s |
| `todo.task.priority-changed` | `standard` | Idempotent upsert (PostgreSQL) | `_analytics-svc.deadletter` | kafkaBreaker | 10s |
| `todo.batch.executed` | `standard` | Idempotent upsert (PostgreSQL) | `_analytics-svc.deadletter` | kafkaBreaker | 15s |

### Search Indexer

| Event | Retry Policy | Idempotency Pattern | DLQ | Circuit Breaker | Timeout |
|-------|-------------|--------------------|----|-----------------|---------|
| `todo.task.created` | `standard` | Idempotent upsert (index) | `_search-indexer.deadletter` | stateBreaker | 10s |
| `todo.task.updated` | `standard` | Idempotent upsert (index) | `_search-indexer.deadletter` | stateBreaker | 10s |
| `todo.task.deleted` | `aggressive` | Conditional state check | `_search-indexer.deadletter` | stateBreaker | 5s |
| `todo.task.tag-added` | `standard` | Idempotent upsert (index) | `_search-indexer.deadletter` | stateBreaker | 10s |
| `todo.task.tag-removed` | `standard` | Idempotent upsert (index) | `_search-indexer.deadletter` | stateBreaker | 10s |

### Recurrence Service

| Event | Retry Policy | Idempotency Pattern | DLQ | Circuit Breaker | Timeout |
|-------|-------------|--------------------|----|-----------------|---------|
| `todo.task.completed` | `critical` | Transactional outbox (PostgreSQL) | `_recurrence-svc.deadletter` | kafkaBreaker | 15s |
| `todo.recurrence.rule-created` | `critical` | Transactional outbox (PostgreSQL) | `_recurrence-svc.deadletter` | kafkaBreaker | 15s |

### Reminder Service

| Event | Retry Policy | Idempotency Pattern | DLQ | Circuit Breaker | Timeout |
|-------|-------------|--------------------|----|-----------------|---------|
| `todo.task.due-date-set` | `critical` | Event ID dedup (Redis, not available) | `_reminder-svc.deadletter` | kafkaBreaker | 10s |
| `todo.task.due-date-changed` | `critical` | Event ID dedup (Redis, not available) | `_reminder-svc.deadletter` | kafkaBreaker | 10s |
| `todo.reminder.snoozed` | `standard` | Event ID dedup (Redis, not available) | `_reminder-svc.deadletter` | kafkaBreaker | 10s |
| Jobs API callback | `aggressive` | Conditional state check | `_reminder-svc.deadletter` | sidecarBreaker | 5s |
";

#[test]
fn the_todo_book_gives_the_tables_of_its_document() {
    let printed = redrive(&["export", "matrix", "--rules", "crates/server/tests/books/todo.yaml"]).printed();
    assert_eq!(printed, TABLES);
}

#[test]
fn a_book_with_errors_is_shown_and_refused() {
    let folder = Folder::with("redrive.yaml", "version: 1\nservices: { a: { } }\n");
    let said = folder.run(&["export", "matrix"]).refused();
    assert!(said.contains("a service needs `target`"), "{said}");
    assert!(said.contains("error: redrive.yaml has errors"), "{said}");
}
