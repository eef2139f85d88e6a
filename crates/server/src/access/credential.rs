//! The credential of a request: an API key or a token, from one of two headers.

use axum::http::{HeaderMap, HeaderName, header};

use crate::keys;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential<'a> {
    /// A text with the prefix of our keys.
    Key(&'a str),
    /// Any other text.
    Token(&'a str),
}

/// Unreadable, or more than one credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreadableCredential;

impl<'a> Credential<'a> {
    /// `None` if the request carries none.
    pub(crate) fn of(headers: &'a HeaderMap) -> Result<Option<Self>, UnreadableCredential> {
        let bearer = single(headers, &header::AUTHORIZATION)?.map(bearer).transpose()?;
        let key = single(headers, &API_KEY)?;
        match (bearer, key) {
            (None, None) => Ok(None),
            (Some(text), None) if text.starts_with(keys::PREFIX) => Ok(Some(Self::Key(text))),
            (Some(text), None) => Ok(Some(Self::Token(text))),
            (None, Some(text)) => Ok(Some(Self::Key(text))),
            (Some(_), Some(_)) => Err(UnreadableCredential),
        }
    }
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, UnreadableCredential> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(|text| Some(text.trim())).map_err(|_| UnreadableCredential),
        (Some(_), Some(_)) => Err(UnreadableCredential),
    }
}

/// The scheme name is case-insensitive.
fn bearer(value: &str) -> Result<&str, UnreadableCredential> {
    let (scheme, text) = value.split_once(' ').ok_or(UnreadableCredential)?;
    let text = text.trim_start_matches(' ');
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !text.is_empty() && !text.contains(' ');
    if is_bearer { Ok(text) } else { Err(UnreadableCredential) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Result<Option<Credential<'a>>, UnreadableCredential>);

    #[test]
    fn one_thing_is_shown_in_one_of_two_ways() {
        use Credential::{Key, Token};
        #[rustfmt::skip]
        let cases: [Case<'_>; 14] = [
            ("nothing",              &[],                                                     Ok(None)),
            ("a key",                &[("authorization", "Bearer rk_1")],                     Ok(Some(Key("rk_1")))),
            ("in any case",          &[("authorization", "bEARER rk_1")],                     Ok(Some(Key("rk_1")))),
            ("with more room",       &[("authorization", "Bearer   rk_1 ")],                  Ok(Some(Key("rk_1")))),
            ("a token",              &[("authorization", "Bearer eyJ.e.s")],                  Ok(Some(Token("eyJ.e.s")))),
            ("by the other header",  &[("x-api-key", "rk_1")],                                Ok(Some(Key("rk_1")))),
            ("a token there",        &[("x-api-key", "eyJ.e.s")],                             Ok(Some(Key("eyJ.e.s")))),
            ("both",                 &[("x-api-key", "rk_1"), ("authorization", "Bearer rk_1")], Err(UnreadableCredential)),
            ("twice",                &[("x-api-key", "rk_1"), ("x-api-key", "rk_1")],         Err(UnreadableCredential)),
            ("twice the first",      &[("authorization", "Bearer rk_1"), ("authorization", "Bearer rk_2")], Err(UnreadableCredential)),
            ("another scheme",       &[("authorization", "Basic cms6")],                      Err(UnreadableCredential)),
            ("no scheme",            &[("authorization", "rk_1")],                            Err(UnreadableCredential)),
            ("an empty one",         &[("authorization", "Bearer ")],                         Err(UnreadableCredential)),
            ("two words",            &[("authorization", "Bearer rk_1 rk_2")],                Err(UnreadableCredential)),
        ];
        for (name, pairs, expected) in cases {
            let mut headers = HeaderMap::new();
            for (key, value) in pairs {
                headers.append(key.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
            }
            assert!(Credential::of(&headers) == expected, "{name}");
        }
    }
}
