//! `requests`: deliveries whose query, header and JSON body are templates, with a bearer token, beside plain ones.

use super::deliver::{Through, through};
use crate::book::{Order, Service};
use crate::report::{Budget, Quantity, Row, median};
use crate::stage::{Stage, say};

#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    micros: Vec<f64>,
    lost: u64,
    repeated: u64,
}

impl Rounds {
    fn add(&mut self, through: &Through) {
        self.per_second.push(through.per_second);
        self.micros.push(through.micros);
        self.lost += through.lost;
        self.repeated += through.repeated;
    }
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let (mut plain, mut filled) = (Rounds::default(), Rounds::default());
    let service = Service::taking(0, Order::None);
    for round in 1..=stage.plan.rounds {
        say(format!("requests: round {round} of {}: plain, then with templates", stage.plan.rounds));
        let sink = stage.sink()?;
        let server = stage.server(&sink, std::slice::from_ref(&service))?;
        plain.add(&through(stage, server.listener(), &sink)?);
        server.remove();
        let sink = stage.sink()?;
        let server = stage.templates_server(&sink, &service)?;
        filled.add(&through(stage, server.listener(), &sink)?);
        server.remove();
    }
    let (lost, repeated) = (plain.lost + filled.lost, plain.repeated + filled.repeated);
    Ok(vec![
        Row::new(
            "requests.rate",
            "delivered, with templates and a token",
            Quantity::per_second(median(&filled.per_second)),
        )
        .beside("plain", Quantity::per_second(median(&plain.per_second)))
        .budget(Budget::RatioAtLeast(0.9))
        .rounds(filled.per_second),
        Row::new("requests.cpu", "CPU for each, in the server", Quantity::micros(median(&filled.micros)))
            .beside("plain", Quantity::micros(median(&plain.micros)))
            .rounds(filled.micros),
        Row::new("requests.lost", "lost", Quantity::count(lost)).never(),
        Row::new("requests.repeated", "delivered twice", Quantity::count(repeated)).never(),
    ])
}
