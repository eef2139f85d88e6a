//! Plots of nothing, of one point and of many, with names that want to be more than text.

use super::*;
use crate::show::markup::form::{Tag, tags};

fn plot(points: &[(f64, f64)]) -> Plot {
    let line = Line { name: "calls".into(), tone: Tone::Info, look: Look::Filled, points: points.to_vec() };
    Plot {
        title: "Calls each second".into(),
        unit_x: Unit::Time,
        unit_y: Unit::Number(String::new()),
        series: vec![line],
        bands: Vec::new(),
        limits: Vec::new(),
        strip: None,
        places: Vec::new(),
    }
}

fn band(name: &str, tone: Tone, from: f64, to: f64) -> Band {
    Band { name: name.into(), tone, from, to }
}

fn both(plot: &Plot) -> [String; 2] {
    [svg(plot), figure(plot)]
}

/// The places that are drawn, which must all be numbers.
fn check_places(tags: &[Tag]) {
    const PLACES: [&str; 13] =
        ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "dy", "d"];
    for tag in tags {
        for (key, value) in tag.attributes.iter().filter(|(key, _)| PLACES.contains(&key.as_str())) {
            let numbers = value.split(|c: char| "MLHZh %".contains(c)).filter(|number| !number.is_empty());
            for number in numbers {
                let number = number.trim_end_matches("em");
                let parsed = number.parse::<f64>();
                assert!(parsed.is_ok_and(f64::is_finite), "{key} of {} is {value}", tag.name);
            }
        }
    }
}

#[test]
fn places_are_marked_and_as_many_named_as_fit() {
    let points: Vec<(f64, f64)> = (0..40).map(|at| (f64::from(at), f64::from(at))).collect();
    #[rustfmt::skip]
    let cases = [
        ("a few",      3,  "n", 3,  "middle"),
        ("many",       40, "n", 8,  "middle"),
        ("long names", 2,  "a-long-name-", 2, "start"),
    ];
    for (name, count, called, named, class) in cases {
        let mut plot = plot(&points[..count]);
        plot.places = (0..count).map(|at| Place { at: at as f64, name: format!("{called}{at}") }).collect();
        let drawn = figure(&plot);
        check_places(&tags(&drawn));
        assert_eq!(drawn.matches("<circle").count(), count, "{name}: each has a dot");
        assert_eq!(drawn.matches("y1=\"0\" y2=\"100%\"").count(), count, "{name}: each has a line");
        assert_eq!(drawn.matches("dy=\"1.5em\"").count(), named, "{name}: {drawn}");
        assert!(drawn.contains(&format!("<text class=\"{class}\" x=\"0%\"")), "{name}: {drawn}");
        let last = count - 1;
        assert!(drawn.contains(&format!("at {called}{last}; {last} at the end")), "{name}: told by its name");
    }
}

#[test]
fn any_points_make_a_picture_of_numbers() {
    let many: Vec<(f64, f64)> = (0..5_000).map(|at| (f64::from(at), f64::from(at % 37))).collect();
    #[rustfmt::skip]
    let cases: [(&str, &[(f64, f64)]); 11] = [
        ("none",                &[]),
        ("one",                 &[(3.0, 4.0)]),
        ("one at zero",         &[(0.0, 0.0)]),
        ("many",                &many),
        ("all zero",            &[(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]),
        ("a gap",               &[(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)]),
        ("only gaps",           &[(0.0, f64::NAN), (1.0, f64::INFINITY)]),
        ("gaps in time",        &[(f64::NAN, 1.0), (f64::NEG_INFINITY, 1.0), (2.0, 3.0)]),
        ("below zero",          &[(-3.0, -4.0), (5.0, 1.0)]),
        ("as large as can be",  &[(0.0, f64::MAX), (f64::MAX, 1.0), (1.0, 9e17)]),
        ("as small as can be",  &[(0.0, f64::MIN_POSITIVE), (f64::MIN_POSITIVE, 1e-200)]),
    ];
    for (name, points) in cases {
        let mut plot = plot(points);
        plot.limits =
            vec![Limit { name: "capacity".into(), at: f64::NAN }, Limit { name: "most".into(), at: 2.0 }];
        plot.bands =
            vec![band("down", Tone::Bad, f64::NAN, 1.0), band("down", Tone::Bad, 0.5, f64::INFINITY)];
        for unit in [Unit::Time, Unit::Count("calls".into()), Unit::Number("calls".into())] {
            plot.unit_y = unit;
            for drawn in both(&plot) {
                check_places(&tags(&drawn));
                let lower = drawn.to_lowercase();
                assert!(!lower.contains("nan") && !lower.contains("inf\""), "{name}: {drawn}");
            }
        }
    }
}

#[test]
fn one_point_is_seen_and_a_gap_is_left_open() {
    let strokes = |points: &[(f64, f64)]| figure(&plot(points)).matches("class=\"stroke").count();
    assert_eq!(strokes(&[]), 0);
    assert_eq!(strokes(&[(1.0, 2.0)]), 1);
    assert!(figure(&plot(&[(1.0, 2.0)])).contains("stroke single"));
    assert_eq!(strokes(&[(0.0, 1.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0)]), 2);
}

#[test]
fn names_are_text_whatever_they_say() {
    let hostile = "</title></svg><script>alert(1)</script>\" onload=\"x' &amp;";
    let mut plot = plot(&[(0.0, 1.0), (1.0, 2.0)]);
    plot.title = hostile.into();
    plot.series[0].name = hostile.into();
    plot.unit_x = Unit::Number(hostile.into());
    plot.unit_y = Unit::Count(hostile.into());
    plot.bands = vec![band(hostile, Tone::Bad, 0.0, 0.5)];
    plot.limits = vec![Limit { name: hostile.into(), at: 2.0 }];
    plot.strip = Some(Strip { name: hostile.into(), spans: vec![band(hostile, Tone::Bad, 0.1, 0.2)] });
    for drawn in both(&plot) {
        for tag in tags(&drawn) {
            assert_ne!(tag.name, "script");
            assert!(
                tag.attributes.iter().all(|(key, _)| !key.starts_with("on") && key != "style"),
                "{tag:?}"
            );
        }
    }
}

#[test]
fn a_limit_far_above_does_not_flatten_what_is_drawn() {
    #[rustfmt::skip]
    let cases = [
        ("near",   15.0, true,  "capacity 15"),
        ("far",  1000.0, false, "capacity 1k, above all this"),
    ];
    for (name, at, is_drawn, in_legend) in cases {
        let mut plot = plot(&[(0.0, 1.0), (1.0, 10.0)]);
        plot.limits = vec![Limit { name: "capacity".into(), at }];
        for drawn in both(&plot) {
            assert_eq!(drawn.contains("class=\"limit\" x1=\"0\""), is_drawn, "{name}");
            assert!(drawn.contains(in_legend), "{name}: {drawn}");
        }
    }
}

#[test]
fn a_limit_leaves_room_for_its_name_below_the_strip() {
    let mut plot = plot(&[(0.0, 1.0), (1.0, 27.0)]);
    plot.limits = vec![Limit { name: "capacity".into(), at: 30.0 }];
    plot.strip = Some(Strip { name: "breaker".into(), spans: Vec::new() });
    assert!(Scale::of(&plot).y(30.0) > 0.1, "it stands below the top");
}

#[test]
fn time_goes_on_where_there_is_nothing_to_draw() {
    let scale = Scale::of(&plot(&[(0.0, f64::NAN), (60.0, 1.0), (120.0, 2.0), (180.0, f64::NAN)]));
    assert_eq!((scale.from, scale.to), (0.0, 180.0));
}

#[test]
fn a_part_of_a_page_brings_no_style_of_its_own() {
    let drawn = figure(&plot(&[(0.0, 1.0), (1.0, 10.0)]));
    for tag in tags(&drawn) {
        assert_ne!(tag.name, "style");
        assert!(tag.attributes.iter().all(|(key, _)| key != "style" && key != "id"), "{tag:?}");
    }
}

#[test]
fn a_small_picture() {
    let mut plot = plot(&[(0.0, 10.0), (60.0, 10.0), (120.0, 10.0), (180.0, 36.5), (240.0, 12.0)]);
    plot.series.push(Line {
        name: "first attempts".into(),
        tone: Tone::Hold,
        look: Look::Dashed,
        points: vec![(0.0, 10.0), (240.0, 10.0)],
    });
    plot.bands = vec![band("down", Tone::Bad, 60.0, 120.0)];
    plot.limits = vec![Limit { name: "capacity".into(), at: 30.0 }];
    plot.strip =
        Some(Strip { name: "breaker".into(), spans: vec![band("breaker open", Tone::Bad, 65.0, 125.0)] });
    let [alone, part] = both(&plot);
    insta::assert_snapshot!("alone", alone);
    insta::assert_snapshot!("part", part);
}
