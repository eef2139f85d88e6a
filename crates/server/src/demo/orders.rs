//! The traffic of the demo: orders of a small shop.

use std::time::Duration;

use redrive_core::event::Event;
use redrive_core::event::attribute::EventId;
use redrive_core::event::simple::{SimpleEvent, parse_simple};
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_node::runtime::{Node, SubmitError};
use serde_json::{Value, json};

use crate::api::ids::fresh_id;

const EVERY: Duration = Duration::from_millis(250);

const IMPORT_EVERY: u64 = 60;

const IMPORTED: u64 = 20;

const CUSTOMERS: u64 = 40;

/// Countries of the customers; those in the EU have a VAT id.
const COUNTRIES: [&str; 5] = ["US", "DE", "GB", "US", "FR"];

pub(crate) async fn send(node: Node) {
    let mut tick = tokio::time::interval(EVERY);
    for number in 0.. {
        tick.tick().await;
        // The page shows other errors; the shop continues.
        if let Err(SubmitError::Stopping) = node.submit(orders_of(number)).await {
            return;
        }
    }
}

fn orders_of(number: u64) -> Vec<Event> {
    if number % IMPORT_EVERY == IMPORT_EVERY - 1 {
        let customers = (0..IMPORTED).map(|of| draw(number * IMPORTED + of) % CUSTOMERS);
        return customers
            .map(|customer| event("customers.updated", customer, &json!({ "newsletter": true })))
            .collect();
    }
    let customer = draw(number) % CUSTOMERS;
    let country = COUNTRIES[usize::try_from(customer).unwrap_or_default() % COUNTRIES.len()];
    let order = format!("A-{}", 10_000 + number);
    let (event_type, data) = match draw(number ^ 0xffff) % 10 {
        0 => ("orders.cancelled", json!({ "order": order })),
        1 => ("customers.updated", json!({ "newsletter": false })),
        _ => {
            let total = 5 + draw(number + 7) % 400;
            ("orders.placed", json!({ "order": order, "country": country, "total": total }))
        }
    };
    vec![event(event_type, customer, &data)]
}

fn event(event_type: &str, customer: u64, data: &Value) -> Event {
    let customer = format!("customer-{customer}");
    let mut data = data.clone();
    data["customer"] = customer.as_str().into();
    let headers = vec![("ce-source".to_owned(), "/shop".to_owned())];
    let id = EventId::new(&fresh_id().hyphenated().to_string()).expect("digits, letters and dashes");
    let easy = SimpleEvent {
        event_type,
        partition_key: Some(&customer),
        idempotency_key: None,
        generated_id: &id,
        headers: &headers,
        body: &serde_json::to_vec(&data).expect("texts and numbers are always JSON").into(),
    };
    parse_simple(easy).expect("an event of our own")
}

fn draw(number: u64) -> u64 {
    Seed(7).draw(DeliveryId(u128::from(number)), Attempt::FIRST)
}
