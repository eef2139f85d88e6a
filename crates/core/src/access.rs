//! Access control: roles, permissions and scopes.
//!
//! A role decides which permissions a caller has, a scope on which sources and services; both must allow a
//! request.
//!
//! Invariants:
//! - what is not allowed is refused; an unknown role has no permissions;
//! - a caller with a scope cannot affect anything outside it, directly or indirectly.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends events only.
    Ingest,
    Viewer,
    /// Views data, sends events, and manages services, dead letters and replays.
    Operator,
    /// Everything, including keys.
    Admin,
}

/// What an API call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    Send,
    /// View events, deliveries, dead letters and the server's state.
    Read,
    /// Pause and resume services, trip and reset breakers, manage dead letters and replays.
    Operate,
    /// Create and revoke keys, and back up the store.
    Administer,
}

impl Permission {
    pub const ALL: [Self; 4] = [Self::Send, Self::Read, Self::Operate, Self::Administer];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    #[must_use]
    pub const fn as_words(self) -> &'static str {
        match self {
            Self::Send => "send events",
            Self::Read => "view data",
            Self::Operate => "manage services, dead letters and replays",
            Self::Administer => "manage keys and backups",
        }
    }

    /// Least privileged first.
    #[must_use]
    pub fn roles(self) -> Vec<Role> {
        Role::ALL.into_iter().filter(|role| role.may(self)).collect()
    }
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Viewer, Self::Operator, Self::Admin];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    #[must_use]
    pub const fn may(self, act: Permission) -> bool {
        match (self, act) {
            (Self::Ingest, Permission::Send)
            | (Self::Viewer, Permission::Read)
            | (Self::Operator, Permission::Send | Permission::Read | Permission::Operate)
            | (Self::Admin, _) => true,
            (Self::Ingest | Self::Viewer | Self::Operator, _) => false,
        }
    }
}

/// Limits of a caller; an empty list does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessScope {
    /// Allowed event sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    /// An admin could create a key without the scope.
    #[error("an admin key cannot be limited to sources or services: admins can create keys of any scope")]
    Admin,
    #[error("the role `{}` sends no events, so it cannot be limited to sources", .0.as_str())]
    SendsNothing(Role),
    #[error(
        "the role `{}` cannot view or operate services: limit it to sources instead",
        .0.as_str()
    )]
    SeesNothing(Role),
}

impl AccessScope {
    /// Whether the scope makes sense for this role.
    pub fn check(&self, role: Role) -> Result<(), InvalidScope> {
        let is_bound = !self.sources.is_empty() || !self.services.is_empty();
        if role == Role::Admin && is_bound {
            return Err(InvalidScope::Admin);
        }
        if !self.sources.is_empty() && !role.may(Permission::Send) {
            return Err(InvalidScope::SendsNothing(role));
        }
        if !self.services.is_empty() && !role.may(Permission::Read) {
            return Err(InvalidScope::SeesNothing(role));
        }
        Ok(())
    }

    /// Whether events of this source may be sent.
    ///
    /// An event goes to every subscriber. A caller limited to services could reach others through it, and so
    /// may only send if sources are named.
    #[must_use]
    pub fn allows_source(&self, source: &str) -> bool {
        if self.sources.is_empty() {
            return self.services.is_empty();
        }
        self.sources.iter().any(|allowed| allowed == source)
    }

    /// Whether this service may be viewed and operated.
    #[must_use]
    pub fn allows_service(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|allowed| allowed == service)
    }

    /// Whether everything that is not specific to one service is denied.
    #[must_use]
    pub const fn is_bound_to_services(&self) -> bool {
        !self.services.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_it_is_for_and_nothing_else() {
        use Permission::{Administer, Operate, Read, Send};
        #[rustfmt::skip]
        let cases: [(Role, &[Permission]); 4] = [
            (Role::Ingest,   &[Send]),
            (Role::Viewer,   &[Read]),
            (Role::Operator, &[Send, Read, Operate]),
            (Role::Admin,    &[Send, Read, Operate, Administer]),
        ];
        for (role, allowed) in cases {
            for act in Permission::ALL {
                assert_eq!(role.may(act), allowed.contains(&act), "{} {}", role.as_str(), act.as_words());
                assert_eq!(act.roles().contains(&role), role.may(act), "{}", role.as_str());
            }
        }
    }

    #[test]
    fn every_act_is_somebodys() {
        for act in Permission::ALL {
            assert!(act.roles().contains(&Role::Admin), "{}", act.as_words());
        }
    }

    #[test]
    fn names_come_back_and_others_are_nobody() {
        for role in Role::ALL {
            assert_eq!(Role::from_word(role.as_str()), Some(role));
        }
        for word in ["", "Admin", "admin ", "root"] {
            assert_eq!(Role::from_word(word), None, "{word:?}");
        }
    }

    fn scope(sources: &[&str], services: &[&str]) -> AccessScope {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        AccessScope { sources: owned(sources), services: owned(services) }
    }

    #[test]
    fn a_scope_binds_to_what_it_names() {
        #[rustfmt::skip]
        let cases = [
            ("nothing binds",                scope(&[], &[]),                 true,  true,  true,  true),
            ("sources bind what is sent",    scope(&["/shop"], &[]),          true,  false, true,  true),
            ("services bind what is seen",   scope(&[], &["billing"]),        false, false, true,  false),
            ("both do",                      scope(&["/shop"], &["billing"]), true,  false, true,  false),
            ("names are whole",              scope(&["/sho"], &["bill"]),     false, false, false, false),
            ("an empty name is nobody's",    scope(&[""], &[""]),             false, false, false, false),
        ];
        for (name, scope, shop, other, billing, mail) in cases {
            assert_eq!(scope.allows_source("/shop"), shop, "{name}");
            assert_eq!(scope.allows_source("/shop/2"), other, "{name}");
            assert_eq!(scope.allows_service("billing"), billing, "{name}");
            assert_eq!(scope.allows_service("mail"), mail, "{name}");
        }
    }

    #[test]
    fn a_scope_that_binds_nothing_of_a_role_is_refused() {
        let (sources, services) = (scope(&["/shop"], &[]), scope(&[], &["billing"]));
        #[rustfmt::skip]
        let cases = [
            (Role::Ingest,   Ok(()),                                     Err(InvalidScope::SeesNothing(Role::Ingest))),
            (Role::Viewer,   Err(InvalidScope::SendsNothing(Role::Viewer)), Ok(())),
            (Role::Operator, Ok(()),                                     Ok(())),
            (Role::Admin,    Err(InvalidScope::Admin),                     Err(InvalidScope::Admin)),
        ];
        for (role, of_sources, of_services) in cases {
            assert_eq!(AccessScope::default().check(role), Ok(()), "{}", role.as_str());
            assert_eq!(sources.check(role), of_sources, "{}", role.as_str());
            assert_eq!(services.check(role), of_services, "{}", role.as_str());
        }
    }
}
