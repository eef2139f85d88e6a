//! Tables from the documents the policies come from, and what must hold for every policy there can be.

use proptest::prelude::*;

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn exponential(initial: Duration, factor: f64, max: Duration, jitter: Jitter) -> Backoff {
    let schedule = RawSchedule::Exponential { initial, factor, max };
    let raw = RawBackoff { schedule, jitter, retries: 5, window: None };
    Backoff::try_from(raw).expect("a sound policy")
}

fn listed(delays: &[Duration], jitter: Jitter, retries: u32) -> Result<Backoff, InvalidBackoff> {
    let schedule = RawSchedule::Listed(delays.to_vec());
    Backoff::try_from(RawBackoff { schedule, jitter, retries, window: None })
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sound = RawBackoff {
        schedule: RawSchedule::Exponential { initial: ms(100), factor: 2.0, max: ms(500) },
        jitter: Jitter::Equal,
        retries: 3,
        window: Some(ms(1_000)),
    };
    let scheduled = |initial, factor, max| RawBackoff {
        schedule: RawSchedule::Exponential { initial: ms(initial), factor, max: ms(max) },
        ..sound.clone()
    };
    let zero_share = Jitter::SpreadShare(Share::new(0.0).expect("a share"));
    #[rustfmt::skip]
    let cases = [
        ("a zero initial delay",     scheduled(0, 2.0, 500),     InvalidBackoff::ZeroInitial),
        ("a max below initial",      scheduled(100, 2.0, 99),    InvalidBackoff::MaxBelowInitial { initial: ms(100), max: ms(99) }),
        ("a shrinking factor",       scheduled(100, 0.5, 500),   InvalidBackoff::FactorBelowOne { given: 0.5 }),
        ("an endless factor",        scheduled(100, f64::INFINITY, 500), InvalidBackoff::FactorBelowOne { given: f64::INFINITY }),
        ("too many retries",         RawBackoff { retries: 100_001, ..sound.clone() }, InvalidBackoff::TooManyRetries { given: 100_001 }),
        ("no window",                RawBackoff { window: Some(ms(0)), ..sound.clone() }, InvalidBackoff::ZeroWindow),
        ("a spread by nothing",      RawBackoff { jitter: Jitter::Plus(ms(0)), ..sound.clone() }, InvalidBackoff::ZeroSpread { jitter: Jitter::Plus(ms(0)) }),
        ("a spread by no share",     RawBackoff { jitter: zero_share, ..sound.clone() }, InvalidBackoff::ZeroSpread { jitter: zero_share }),
        ("an empty list",            RawBackoff { schedule: RawSchedule::Listed(vec![]), ..sound.clone() }, InvalidBackoff::EmptyList),
        ("retries without delays",   RawBackoff { schedule: RawSchedule::Never, ..sound.clone() }, InvalidBackoff::NoSchedule { retries: 3 }),
        ("a decorrelated list",      RawBackoff { schedule: RawSchedule::Listed(vec![ms(1)]), jitter: Jitter::Decorrelated, ..sound.clone() }, InvalidBackoff::DecorrelatedList),
    ];
    for (name, raw, expected) in cases {
        assert_eq!(Backoff::try_from(raw), Err(expected), "{name}");
    }
    assert!(matches!(
        Backoff::try_from(scheduled(100, f64::NAN, 500)),
        Err(InvalidBackoff::FactorBelowOne { given }) if given.is_nan()
    ));
    let backoff = Backoff::try_from(sound.clone()).expect("a sound policy");
    assert_eq!(RawBackoff::from(&backoff), sound, "the written form comes back");
    assert_eq!(Backoff::try_from(RawBackoff::from(&Backoff::none())), Ok(Backoff::none()));
}

#[test]
fn jitter_widens_a_delay_as_declared() {
    let quarter = Share::new(0.25).expect("a share");
    let third = Share::new(0.3).expect("a share");
    #[rustfmt::skip]
    let cases = [
        ("none keeps it",                        Jitter::None,                 1, (200, 200)),
        ("full goes down to nothing",            Jitter::Full,                 1, (0, 200)),
        ("equal keeps half",                     Jitter::Equal,                1, (100, 200)),
        ("equal keeps its width at the cap",     Jitter::Equal,                9, (4_000, 8_000)),
        ("plus goes up only",                    Jitter::Plus(ms(500)),        1, (200, 700)),
        ("plus reaches beyond max",              Jitter::Plus(ms(500)),        9, (8_000, 8_500)),
        ("spread by a share goes both ways",     Jitter::SpreadShare(quarter), 1, (150, 250)),
        ("a share reaches beyond max",           Jitter::SpreadShare(third),   9, (5_600, 10_400)),
        ("spread by a span goes both ways",      Jitter::SpreadBy(ms(100)),    1, (100, 300)),
        ("but not below nothing",                Jitter::SpreadBy(ms(300)),    1, (0, 500)),
        ("decorrelated starts within thrice",    Jitter::Decorrelated,         0, (100, 300)),
        ("and can reach thrice that",            Jitter::Decorrelated,         1, (100, 900)),
        ("up to max",                            Jitter::Decorrelated,         9, (100, 8_000)),
    ];
    for (name, jitter, n, (min, max)) in cases {
        let backoff = exponential(ms(100), 2.0, ms(8_000), jitter);
        assert_eq!(backoff.range(n), (ms(min), ms(max)), "{name}");
        let previous = (n > 0).then(|| backoff.range(n - 1).1);
        assert_eq!(backoff.delay(n, 0, previous), ms(min), "{name}: the lowest draw");
        assert_eq!(backoff.delay(n, u64::MAX, previous), ms(max), "{name}: the highest draw");
    }
}

#[test]
fn decorrelated_jitter_follows_the_delay_before() {
    let backoff = exponential(ms(100), 2.0, ms(8_000), Jitter::Decorrelated);
    assert_eq!(backoff.delay(3, u64::MAX, Some(ms(150))), ms(450));
    assert_eq!(
        backoff.delay(1, u64::MAX, Some(ms(7_000))),
        ms(900),
        "a delay of another policy widens nothing"
    );
    assert_eq!(backoff.delay(3, u64::MAX, Some(ms(1))), ms(100), "nor does it narrow below the initial one");
}

#[test]
fn a_timeline_shows_ranges_and_sums() {
    let quarter = Jitter::SpreadShare(Share::new(0.25).expect("a share"));
    let rows: Vec<_> = timeline(&exponential(ms(100), 2.0, ms(16_000), quarter))
        .into_iter()
        .map(|step| (step.retry, step.min.as_millis(), step.max.as_millis(), step.cumulative.as_millis()))
        .collect();
    #[rustfmt::skip]
    assert_eq!(rows, [
        (1, 75, 125, 100),
        (2, 150, 250, 300),
        (3, 300, 500, 700),
        (4, 600, 1_000, 1_500),
        (5, 1_200, 2_000, 3_100),
    ]);
    assert_eq!(timeline(&Backoff::none()), []);
    let endless = listed(&[ms(1)], Jitter::None, limits::RETRIES_MAX).expect("a sound policy");
    assert_eq!(timeline(&endless).len(), 1_000);
}

#[test]
fn a_list_repeats_its_last_delay() {
    let backoff = listed(&[ms(5), ms(10), ms(20), ms(60)], Jitter::None, 6).expect("a sound policy");
    let delays: Vec<_> = (0..6).map(|n| backoff.nominal(n).as_millis()).collect();
    assert_eq!(delays, [5, 10, 20, 60, 60, 60]);
    assert_eq!(backoff.wait_max_total(), ms(215));
    let falling = listed(&[ms(60), ms(5)], Jitter::Plus(ms(1)), 4).expect("a list may fall");
    assert_eq!((falling.max(), falling.wait_min_total(), falling.wait_max_total()), (ms(60), ms(75), ms(79)));
}

#[test]
fn jitter_reads_as_it_shows() {
    for text in ["none", "full", "equal", "plus 500ms", "spread 25%", "spread 100ms", "decorrelated"] {
        assert_eq!(Jitter::parse(text).map(|jitter| jitter.to_string()), Ok(text.to_owned()));
    }
    for text in ["", "some", "full 5s", "plus", "spread", "plus 5s 5s", "none none", "Full"] {
        assert_eq!(Jitter::parse(text), Err(InvalidJitter::Unknown { text: text.to_owned() }));
    }
    for text in ["plus 5", "plus 25%", "spread 101%", "spread x"] {
        assert!(matches!(Jitter::parse(text), Err(InvalidJitter::Width { .. })), "{text}");
    }
}

#[test]
fn the_longest_policies_are_summed_in_no_time() {
    let slow = Backoff::try_from(RawBackoff {
        schedule: RawSchedule::Exponential { initial: ms(1), factor: 1.000_001, max: Duration::MAX },
        jitter: Jitter::Full,
        retries: limits::RETRIES_MAX,
        window: None,
    });
    let total = slow.expect("a sound policy").wait_max_total();
    assert!((Duration::from_secs(105)..Duration::from_secs(106)).contains(&total), "{total:?}");
}

fn any_span() -> impl Strategy<Value = Duration> {
    let any = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
    let usual = (1..100_000_u64).prop_map(Duration::from_millis);
    prop_oneof![usual, any, Just(Duration::MAX), Just(Duration::from_nanos(1)), Just(Duration::ZERO)]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        any_span().prop_map(Jitter::Plus),
        any_span().prop_map(Jitter::SpreadBy),
        (0.0..=1.0).prop_filter_map("a share", Share::new).prop_map(Jitter::SpreadShare),
    ]
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    let factor = prop_oneof![Just(1.0), Just(2.0), 1.0..1.0 + 1e-7, 1.0..20.0, Just(f64::MAX)];
    let exponential = (any_span(), factor, any_span()).prop_map(|(a, factor, b)| RawSchedule::Exponential {
        initial: a.min(b),
        factor,
        max: a.max(b),
    });
    let listed = prop::collection::vec(any_span(), 1..6).prop_map(RawSchedule::Listed);
    let schedule = prop_oneof![3 => exponential, 1 => listed];
    (schedule, any_jitter(), 0..=limits::RETRIES_MAX).prop_filter_map(
        "a sound policy",
        |(schedule, jitter, retries)| {
            Backoff::try_from(RawBackoff { schedule, jitter, retries, window: None }).ok()
        },
    )
}

fn any_retry() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..20_u32, 1 => any::<u32>(), 1 => Just(u32::MAX - 1)]
}

proptest! {
    #[test]
    fn every_delay_lies_in_its_range(
        backoff in any_backoff(),
        n in any_retry(),
        draw in any::<u64>(),
        previous in prop::option::of(any_span()),
    ) {
        let (min, max) = backoff.range(n);
        let delay = backoff.delay(n, draw, previous);
        prop_assert!(min <= delay && delay <= max, "{min:?} <= {delay:?} <= {max:?}");
    }

    #[test]
    fn nominal_delays_grow_up_to_max(backoff in any_backoff(), n in any_retry()) {
        prop_assert!(backoff.nominal(n) <= backoff.max());
        if backoff.listed().is_none() {
            prop_assert!(backoff.nominal(n) <= backoff.nominal(n + 1));
        }
    }

    #[test]
    fn totals_are_the_sums_of_the_ranges(
        backoff in any_backoff().prop_filter("short", |backoff| backoff.retries() < 100_000),
        retries in 0..60_u32,
    ) {
        let backoff = Backoff { retries, ..backoff };
        let sum = |of: fn((Duration, Duration)) -> Duration| {
            (0..retries).map(|n| of(backoff.range(n))).fold(Duration::ZERO, Duration::saturating_add)
        };
        prop_assert_eq!(backoff.wait_min_total(), sum(|range| range.0));
        prop_assert_eq!(backoff.wait_max_total(), sum(|range| range.1));
    }
}
