//! Random numbers that are the same on every machine. Draws are hashes of what they are for; logarithm and
//! exponential use only additions and multiplications, because the library functions of two machines may differ in
//! the last digit.

use std::time::Duration;

use crate::scenario::Latency;
use redrive_core::hash::stable_64_of;

#[derive(Clone, Copy, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        Self(stable_64_of(seed, purpose ^ 0xc4a7_ce00))
    }

    pub(super) fn of(self, thing: u64) -> Self {
        Self(self.draw(thing))
    }

    pub(super) fn draw(self, number: u64) -> u64 {
        stable_64_of(self.0, number)
    }

    pub(super) fn draw_of(self, first: u64, second: u64) -> u64 {
        stable_64_of(stable_64_of(self.0, first), second)
    }
}

/// In the open interval (0, 1).
pub(super) fn unit(draw: u64) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    ((draw >> 11) as f64 + 0.5) * STEP
}

pub(super) fn below(draw: u64, count: u64) -> u64 {
    let high = (u128::from(draw) * u128::from(count)) >> 64;
    u64::try_from(high).expect("less than the count")
}

/// Exponentially distributed.
pub(super) fn gap_nanos(draw: u64, per_second: f64) -> u64 {
    nanos_in(-ln(unit(draw)) / per_second)
}

/// Saturates.
pub(super) fn nanos_in(seconds: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it stops at either end")]
    let nanos = (seconds * 1e9) as u64;
    nanos
}

/// Log-normal latency, with the sum of eight uniform draws in place of a normal one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    p50_nanos: f64,
    spread: f64,
}

/// The 99th percentile of the sum of eight uniform draws from -0.5 to 0.5.
const BELL_P99: f64 = 1.869_453_038;

impl Curve {
    pub(super) fn new(latency: Latency) -> Self {
        let p50_nanos = (latency.p50.as_nanos() as f64).max(1.0);
        let p99_nanos = (latency.p99.as_nanos() as f64).max(p50_nanos);
        Self { p50_nanos, spread: ln(p99_nanos / p50_nanos) / BELL_P99 }
    }

    pub(super) fn at(&self, draw: u64) -> Duration {
        let second = stable_64_of(draw, 1);
        let parts = [draw, second]
            .into_iter()
            .flat_map(|draw| (0..4).map(move |part| (draw >> (16 * part)) & 0xffff));
        let sum: u64 = parts.sum();
        let bell = (sum as f64 + 4.0) / 65_536.0 - 4.0;
        nanos_of(self.p50_nanos * exp(self.spread * bell))
    }

    pub(super) fn mean_seconds(&self) -> f64 {
        let half = self.spread / 2.0;
        // The mean of exp over one uniform draw; the eight are independent.
        let one = if half < 1e-9 { 1.0 } else { (exp(half) - exp(-half)) / (2.0 * half) };
        let squared = one * one;
        let fourth = squared * squared;
        self.p50_nanos * 1e-9 * fourth * fourth
    }
}

fn nanos_of(nanos: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it stops at either end")]
    let nanos = nanos as u64;
    Duration::from_nanos(nanos)
}

/// For numbers above 0.
fn ln(number: f64) -> f64 {
    let bits = number.to_bits();
    let exponent = i32::try_from((bits >> 52) & 0x7ff).expect("eleven bits") - 1_023;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    // Between 1/√2 and √2 the series converges fast.
    let (mantissa, exponent) = if mantissa > std::f64::consts::SQRT_2 {
        (mantissa / 2.0, exponent + 1)
    } else {
        (mantissa, exponent)
    };
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let squared = ratio * ratio;
    let mut sum = 0.0;
    for power in (0..12).rev() {
        sum = sum * squared + 1.0 / f64::from(2 * power + 1);
    }
    2.0 * ratio * sum + f64::from(exponent) * std::f64::consts::LN_2
}

fn exp(number: f64) -> f64 {
    let number = number.clamp(-700.0, 700.0);
    let halvings = (number / std::f64::consts::LN_2).round();
    let rest = number - halvings * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for term in (1..=14).rev() {
        sum = 1.0 + sum * rest / f64::from(term);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to ±1010")]
    let scale = f64::from_bits(((halvings as i64 + 1_023) as u64) << 52);
    sum * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_curves_are_those_of_mathematics() {
        for number in [1e-9, 0.1, 0.5, 1.0, 1.5, 2.0, 10.0, 12_345.678, 1e12] {
            assert!((ln(number) - number.ln()).abs() < 1e-12 * (1.0 + number.ln().abs()), "ln {number}");
        }
        for number in [-20.0, -1.0, -1e-9, 0.0, 0.3, 1.0, 5.0, 40.0] {
            assert!((exp(number) / number.exp() - 1.0).abs() < 1e-12, "exp {number}");
        }
    }

    #[test]
    fn latencies_have_the_quantiles_and_the_mean_that_were_asked_for() {
        let ms = Duration::from_millis;
        for (p50, p99) in [(20, 200), (100, 100), (5, 50), (1_000, 3_000)] {
            let curve = Curve::new(Latency { p50: ms(p50), p99: ms(p99) });
            let chance = Chance::new(7, 1);
            let mut times: Vec<Duration> = (0..100_000).map(|number| curve.at(chance.draw(number))).collect();
            times.sort_unstable();
            let is_near = |time: Duration, wanted: u64| {
                let ratio = time.as_secs_f64() / ms(wanted).as_secs_f64();
                (0.95..=1.05).contains(&ratio)
            };
            assert!(is_near(times[50_000], p50), "{p50} {p99}: {:?}", times[50_000]);
            assert!(is_near(times[99_000], p99), "{p50} {p99}: {:?}", times[99_000]);
            let mean = times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len() as f64;
            assert!(
                (curve.mean_seconds() / mean - 1.0).abs() < 0.03,
                "{} beside {mean}",
                curve.mean_seconds()
            );
        }
    }

    #[test]
    fn draws_are_frozen_to_the_last_digit() {
        let (chance, curve) = (Chance::new(7, 1), Curve::new(Latency::USUAL));
        let times = [0, 1, 2, 3].map(|number| curve.at(chance.draw(number)).as_nanos());
        assert_eq!(times, [19_854_315, 13_032_338, 12_702_021, 121_677_492]);
        let gaps = [0, 1, 2, 3].map(|number| gap_nanos(chance.draw(number), 50.0));
        assert_eq!(gaps, [18_956_469, 4_786_732, 80_052_732, 3_102_222]);
    }

    #[test]
    fn gaps_by_chance_come_to_their_rate() {
        let chance = Chance::new(7, 2);
        let sum: u64 = (0..100_000).map(|number| gap_nanos(chance.draw(number), 50.0)).sum();
        let rate = 100_000.0 / (sum as f64 / 1e9);
        assert!((49.0..51.0).contains(&rate), "{rate}");
    }
}
