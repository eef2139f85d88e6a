//! Divides the calls that may be in flight: every service has a reserved part, and the rest is lent.
//!
//! Half of all is reserved in equal parts, one for each service, whether it needs it or not; the other half
//! goes to the first that asks. So a service whose target hangs can fill its own part and what is lent, and
//! never the part of another: calls in flight cannot be taken back, only prevented.
//!
//! Invariant: a service below its own part is never refused.

#[derive(Debug)]
pub(super) struct CallShares {
    in_flight: Vec<u32>,
    own: u32,
    lendable: u32,
    lent: u32,
}

impl CallShares {
    pub(super) fn new() -> Self {
        Self { in_flight: Vec::new(), own: 1, lendable: 0, lent: 0 }
    }

    /// Divides again for so many services; calls in flight stay counted.
    pub(super) fn divide(&mut self, calls_max: u32, services: usize) {
        let parts = u32::try_from(services.max(1)).unwrap_or(u32::MAX);
        self.own = (calls_max / 2 / parts).max(1);
        self.lendable = calls_max.saturating_sub(self.own.saturating_mul(parts));
        self.in_flight.resize(services, 0);
        self.lent = self.in_flight.iter().map(|count| count.saturating_sub(self.own)).sum();
    }

    pub(super) fn free(&self, service: usize) -> u32 {
        let own = self.own.saturating_sub(self.in_flight[service]);
        own + self.lendable.saturating_sub(self.lent)
    }

    pub(super) fn take(&mut self, service: usize) {
        assert!(self.free(service) > 0, "only a free call is taken");
        self.in_flight[service] += 1;
        if self.in_flight[service] > self.own {
            self.lent += 1;
        }
    }

    pub(super) fn give_back(&mut self, service: usize) {
        assert!(self.in_flight[service] > 0, "only what was taken comes back");
        if self.in_flight[service] > self.own {
            self.lent -= 1;
        }
        self.in_flight[service] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CallShares {
        /// Reserves nothing for any service.
        pub(in crate::engine) fn lend_all(&mut self, calls_max: u32) {
            self.own = 0;
            self.lendable = calls_max;
            self.lent = self.in_flight.iter().sum();
        }

        fn in_flight(&self, service: usize) -> u32 {
            self.in_flight[service]
        }
    }

    fn of(calls_max: u32, services: usize) -> CallShares {
        let mut shares = CallShares::new();
        shares.divide(calls_max, services);
        shares
    }

    #[test]
    fn nine_that_hang_leave_the_tenth_its_part() {
        let mut shares = of(100, 10);
        for service in (0..9).cycle().take(900) {
            if shares.free(service) > 0 {
                shares.take(service);
            }
        }
        let taken: u32 = (0..9).map(|service| shares.in_flight(service)).sum();
        assert_eq!(taken, 9 * 5 + 50, "their own parts, and all that is lent");
        assert_eq!(shares.free(9), 5);
        shares.give_back(0);
        assert_eq!(shares.free(9), 6);
    }

    #[test]
    fn one_alone_may_have_all_and_many_have_one_each() {
        #[rustfmt::skip]
        let cases = [
            ("one alone",                100, 1,   100),
            ("half is for the other",    100, 2,   75),
            ("more services than calls", 4,   100, 1),
        ];
        for (name, calls_max, services, expected) in cases {
            assert_eq!(of(calls_max, services).free(0), expected, "{name}");
        }
    }

    #[test]
    fn what_is_in_flight_survives_a_new_division() {
        let mut shares = of(8, 1);
        (0..8).for_each(|_| shares.take(0));
        shares.divide(8, 4);
        assert_eq!((shares.free(0), shares.free(3)), (0, 1));
        (0..8).for_each(|_| shares.give_back(0));
        assert_eq!((shares.free(0), shares.lent), (5, 0));
    }
}
