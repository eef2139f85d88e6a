//! Sources reserved for Redrive's own events.
//!
//! Invariant: no event from outside may use them. Their ids can be guessed, so an outside event could block the
//! real one as a duplicate.

/// Prefix of the source of events made by templates; the source's name follows.
pub const PULLED_PREFIX: &str = "/sources/";

/// Reserved prefixes with the origin of their events.
const RESERVED: [(&str, &str); 6] = [
    ("/v1/hooks/", "the webhooks of the rule book"),
    (crate::schedule::plan::SOURCE_PREFIX, "the schedules of the rule book"),
    (crate::engine::worker::SOURCE_PREFIX, "the workers of the rule book"),
    (PULLED_PREFIX, "the sources of the rule book"),
    ("/alerts/", "alerts"),
    ("redrive:", "alerts"),
];

/// The origin of events with this source, if it is reserved.
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
