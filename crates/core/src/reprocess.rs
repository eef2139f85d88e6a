//! Which dead letters the rule book brings back by itself when a dependency is well again.

use crate::book::RuleBook;
use crate::category::Category;
use crate::engine::QueueName;
use crate::envelope::Tier;
use crate::ids::{ChannelName, DependencyName};

/// Letters of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whose.
    pub queue: &'a QueueName,
    /// Of which event type.
    pub event_type: &'a str,
    /// What they died of.
    pub category: Category,
    /// Among which letters they are kept.
    pub tier: Tier,
}

/// How often a letter of that kind may be brought back, if the book brings it back when that dependency is
/// well again; poison never is.
#[must_use]
pub fn times_max(book: &RuleBook, dependency: &DependencyName, subject: &Subject<'_>) -> Option<u32> {
    let service = subject.queue.service.as_str();
    let channel = subject.queue.channel.as_ref().map(ChannelName::as_str);
    let rule = book.rule(service, channel, subject.event_type)?;
    let letter = book.letter_rule(service, channel, subject.event_type)?;
    let comes_back =
        rule.dependency == *dependency && subject.tier == Tier::Dead && letter.comes_back(subject.category);
    comes_back.then_some(letter.reprocess_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::read;
    use crate::ids::ServiceName;

    #[test]
    fn the_book_says_which_letters_come_back() {
        let letters = |word: &str| {
            let text = format!(
                "version: 1\ndependencies: {{ d: {{ kind: webhook }} }}\nservices: {{ s: {{ target: {{ log: stdout }}, depends_on: d, events: [a], dead_letter: {{ {word} }} }} }}\n"
            );
            let reading = read(&text);
            reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems))
        };
        let queue = QueueName { service: ServiceName::new("s").expect("a name"), channel: None };
        #[rustfmt::skip]
        let cases = [
            ("by hand",                 "reprocess: manual",                                                   "d", "a", Category::Transient, Tier::Dead,   None),
            ("all of them",             "reprocess: automatic",                                                "d", "a", Category::Permanent, Tier::Dead,   Some(3)),
            ("so many times",           "reprocess: automatic, reprocess_max: 7",                              "d", "a", Category::Transient, Tier::Dead,   Some(7)),
            ("another dependency",      "reprocess: automatic",                                                "e", "a", Category::Transient, Tier::Dead,   None),
            ("poison",                  "reprocess: automatic",                                                "d", "a", Category::Transient, Tier::Poison, None),
            ("a type nobody wants",     "reprocess: automatic",                                                "d", "b", Category::Transient, Tier::Dead,   None),
            ("a category that is named", "reprocess: filtered, reprocess_categories: [transient]",             "d", "a", Category::Transient, Tier::Dead,   Some(3)),
            ("one that is not",         "reprocess: filtered, reprocess_categories: [transient]",              "d", "a", Category::Permanent, Tier::Dead,   None),
        ];
        for (name, word, dependency, event_type, category, tier, expected) in cases {
            let dependency = DependencyName::new(dependency).expect("a name");
            let subject = Subject { queue: &queue, event_type, category, tier };
            assert_eq!(times_max(&letters(word), &dependency, &subject), expected, "{name}");
        }
    }
}
