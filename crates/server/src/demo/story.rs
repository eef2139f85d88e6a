//! The story of the demo: something breaks, see why, fix it, replay, and nothing is lost.

use serde::Serialize;
use utoipa::ToSchema;

/// What the story depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemoFacts {
    /// Dead letters of the broken service, with those that a replay has sent and nobody has answered for yet.
    pub(crate) letters: u64,
    /// Somebody has looked why.
    pub(crate) looked: bool,
    /// The service works again.
    pub(crate) mended: bool,
    /// A replay has begun since.
    pub(crate) replayed: bool,
}

/// One step of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoStep)]
pub(crate) struct DemoStep {
    /// What it is called.
    pub(crate) title: &'static str,
    /// What happens, or what to do.
    pub(crate) text: &'static str,
    /// The page that shows it.
    pub(crate) page: &'static str,
    /// The same in a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<&'static str>,
    /// What can be done about it here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) act: Option<DemoButton>,
    /// Where it stands.
    pub(crate) state: DemoStepState,
}

/// Something to press.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoAct)]
pub(crate) struct DemoButton {
    /// The last part of the path to post to.
    pub(crate) act: &'static str,
    /// What stands on the button.
    pub(crate) label: &'static str,
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = DemoStepState)]
pub(crate) enum DemoStepState {
    /// It is done.
    Done,
    /// It comes next.
    Now,
    /// It comes later.
    Later,
}

/// The steps and where they stand: those before the first that is not done are done.
pub(crate) fn steps(facts: &DemoFacts) -> Vec<DemoStep> {
    let DemoFacts { letters, looked, mended, replayed } = *facts;
    let broke = letters > 0 || mended;
    #[rustfmt::skip]
    let story = [
        (broke, "Something breaks",
            "The last deploy of `invoicing` refuses orders from the EU with 422. No retry can help, so none is made: each order is kept as a dead letter, and nothing else is held up.",
            "#/services/invoicing", Some("redrive status"), None),
        (broke && (looked || mended), "See why",
            "`invoicing` was deployed, and refuses orders now: each is kept as a dead letter, with all that is known of it. Thousands of them would still be one cause. Open the failure group, and one of its letters: the attempt, what the service answered, and the line of the rule book that decided.",
            "#/groups", Some("redrive dlq groups"), Some(DemoButton { act: "look", label: "I have seen why" })),
        (mended, "Fix it",
            "Deploy the release of `invoicing` that knows what a VAT id is.",
            "#/services/invoicing", None, Some(DemoButton { act: "mend", label: "Deploy the fix" })),
        (mended && replayed && letters == 0, "Replay",
            "Send the group again: a dry run first, then one letter as a canary, then ten, then the rest, in order and at a pace that the service can take. A replay that stopped before the fix goes on when it is told to; a letter that has failed a replay is poison, and is sent again only if it is asked for.",
            "#/groups", Some("redrive dlq replay --service invoicing --canary"), None),
        (mended && replayed && letters == 0, "Nothing is lost",
            "Every order that failed has been delivered, and the story of each says how it came about.",
            "#/deliveries", Some("redrive why --last"), Some(DemoButton { act: "break", label: "Break it again" })),
    ];
    let done = story.iter().take_while(|(is_done, ..)| *is_done).count();
    let state = |place| match place {
        _ if place < done => DemoStepState::Done,
        _ if place == done => DemoStepState::Now,
        _ => DemoStepState::Later,
    };
    let step = |(place, (_, title, text, page, command, act))| DemoStep {
        title,
        text,
        page,
        command,
        act,
        state: state(place),
    };
    story.into_iter().enumerate().map(step).collect()
}

/// How many steps are done.
pub(crate) fn steps_done(steps: &[DemoStep]) -> usize {
    steps.iter().filter(|step| step.state == DemoStepState::Done).count()
}

/// How far the story has been told.
#[derive(Debug, Default)]
pub(crate) struct DemoProgress {
    told: usize,
}

impl DemoProgress {
    /// What is to be told by now; nothing while nobody knows how it stands, and then the story goes on.
    pub(crate) fn advance(&mut self, facts: Option<&DemoFacts>) -> Vec<DemoStep> {
        let Some(facts) = facts else { return Vec::new() };
        let steps = steps(facts);
        // A story that began anew is told anew.
        self.told = self.told.min(steps_done(&steps) + 1);
        let due = steps.into_iter().skip(self.told).take_while(|step| step.state != DemoStepState::Later);
        let due: Vec<DemoStep> = due.collect();
        self.told += due.len();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_goes_on_step_by_step() {
        let begin = DemoFacts { letters: 0, looked: false, mended: false, replayed: false };
        #[rustfmt::skip]
        let cases = [
            ("nothing has happened",            begin,                                              0),
            ("it broke",                        DemoFacts { letters: 3, ..begin },                      1),
            ("somebody looked",                 DemoFacts { letters: 3, looked: true, ..begin },        2),
            ("mended without a look",           DemoFacts { letters: 3, mended: true, ..begin },        3),
            ("a replay runs, or poison is left", DemoFacts { letters: 3, mended: true, replayed: true, ..begin }, 3),
            ("all of it arrived",               DemoFacts { mended: true, replayed: true, ..begin },    5),
            ("no replay, so nothing came back", DemoFacts { mended: true, ..begin },                    3),
        ];
        for (name, facts, done) in cases {
            let steps = steps(&facts);
            assert_eq!(steps_done(&steps), done, "{name}");
            let next = steps.iter().filter(|step| step.state == DemoStepState::Now).count();
            assert_eq!(next, usize::from(done < steps.len()), "{name}: one comes next, until all are done");
        }
    }

    #[test]
    fn each_step_is_told_once_though_nobody_knows_for_a_while() {
        let begin = DemoFacts { letters: 0, looked: false, mended: false, replayed: false };
        let broke = DemoFacts { letters: 3, ..begin };
        let mended = DemoFacts { mended: true, ..broke };
        #[rustfmt::skip]
        let looks = [
            ("it begins",        Some(begin),  vec!["Something breaks"]),
            ("nothing new",      Some(begin),  vec![]),
            ("nobody knows",     None,         vec![]),
            ("it broke",         Some(broke),  vec!["See why"]),
            ("nobody knows",     None,         vec![]),
            ("somebody mended",  Some(mended), vec!["Fix it", "Replay"]),
            ("it breaks anew",   Some(broke),  vec![]),
            ("and is mended",    Some(mended), vec!["Fix it", "Replay"]),
        ];
        let mut telling = DemoProgress::default();
        for (name, facts, expected) in looks {
            let told: Vec<&str> = telling.advance(facts.as_ref()).iter().map(|step| step.title).collect();
            assert_eq!(told, expected, "{name}");
        }
    }
}
