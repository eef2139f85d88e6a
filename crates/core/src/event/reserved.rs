//! Sources that Redrive gives to events of its own.
//!
//! Invariant: no event from outside has one of them, since the ids of such events can be guessed: an event
//! that came first with such an id would keep the real one out.

/// What begins the source of events that templates have made of messages; the name of a source follows.
pub const PULLED_PREFIX: &str = "/sources/";

/// What begins a source of our own, with what its events come from.
const RESERVED: [(&str, &str); 6] = [
    ("/v1/hooks/", "the webhooks of the rule book"),
    (crate::schedule::plan::SOURCE_PREFIX, "the schedules of the rule book"),
    (crate::engine::worker::SOURCE_PREFIX, "the workers of the rule book"),
    (PULLED_PREFIX, "the sources of the rule book"),
    ("/alerts/", "alerts"),
    ("redrive:", "alerts"),
];

/// What events of that source come from, if the source is one of our own.
#[must_use]
pub fn owner_of(source: &str) -> Option<&'static str> {
    RESERVED.iter().find(|(prefix, _)| source.starts_with(prefix)).map(|(_, owner)| *owner)
}

#[cfg(test)]
mod tests {
    use super::owner_of;

    #[test]
    fn sources_of_our_own_are_known_by_how_they_begin() {
        #[rustfmt::skip]
        let cases = [
            ("/v1/hooks/github",          Some("the webhooks of the rule book")),
            ("/schedules/tick",           Some("the schedules of the rule book")),
            ("/workers/builder",          Some("the workers of the rule book")),
            ("/sources/spool",            Some("the sources of the rule book")),
            ("/alerts/x",                 Some("alerts")),
            ("redrive:alerts",            Some("alerts")),
            ("/shop",                     None),
            ("/imported/schedules/tick",  None),
            ("/schedulesx",               None),
        ];
        for (source, expected) in cases {
            assert_eq!(owner_of(source), expected, "{source}");
        }
    }
}
