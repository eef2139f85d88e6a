//! Who may do what: roles, what each may do, and what a caller is bound to.
//!
//! A role says which kinds of acts its owner may do, a scope on what. The two are asked one after the other,
//! and both must say yes.
//!
//! Invariants:
//! - whatever is not allowed is refused; a role that nobody knows may do nothing;
//! - a scope binds: nobody who has one can do something to what it does not name, directly or on the way.

use serde::{Deserialize, Serialize};

/// What somebody is trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends events, and sees nothing.
    Ingest,
    /// Looks, and changes nothing.
    Viewer,
    /// Looks, sends events, and deals with services, dead letters and replays.
    Operator,
    /// May do everything, keys included.
    Admin,
}

/// A kind of act: what one has to be allowed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Send events.
    Send,
    /// Look at events, deliveries, dead letters, and how the server is.
    Read,
    /// Pause and resume services, trip and reset breakers, and deal with dead letters and replays.
    Operate,
    /// Make and revoke keys, and copy the store.
    Administer,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Send, Self::Read, Self::Operate, Self::Administer];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// What is done, in words.
    #[must_use]
    pub const fn as_words(self) -> &'static str {
        match self {
            Self::Send => "send events",
            Self::Read => "view data",
            Self::Operate => "manage services, dead letters and replays",
            Self::Administer => "manage keys and backups",
        }
    }

    /// The roles that may do it, the least of them first.
    #[must_use]
    pub fn roles(self) -> Vec<Role> {
        Role::ALL.into_iter().filter(|role| role.may(self)).collect()
    }
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Viewer, Self::Operator, Self::Admin];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// Whether it may do such an act.
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

/// What a caller is bound to; empty lists bind to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessScope {
    /// Only events of these sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Only these services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

/// Why a scope does not go with a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    /// Whoever makes keys could make one without it.
    #[error("an admin key cannot be limited to sources or services: admins can create keys of any scope")]
    Admin,
    /// It sends nothing.
    #[error("the role `{}` sends no events, so it cannot be limited to sources", .0.as_str())]
    SendsNothing(Role),
    /// It sees no service.
    #[error(
        "the role `{}` cannot view or operate services: limit it to sources instead",
        .0.as_str()
    )]
    SeesNothing(Role),
}

impl AccessScope {
    /// Whether it binds somebody of that role, and can.
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

    /// Whether events of that source may be sent.
    ///
    /// An event goes to whoever wants it. One who is bound to services could reach others by it, and so sends
    /// only what sources are named for.
    #[must_use]
    pub fn allows_source(&self, source: &str) -> bool {
        if self.sources.is_empty() {
            return self.services.is_empty();
        }
        self.sources.iter().any(|allowed| allowed == source)
    }

    /// Whether what concerns that service may be seen and done.
    #[must_use]
    pub fn allows_service(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|allowed| allowed == service)
    }

    /// Whether what concerns no single service is out of reach.
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
