//! Trace export settings: from `--otlp` and the environment variables of OpenTelemetry.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | the whole address; `--otlp` takes precedence |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | the address without `/v1/traces`; both others take precedence |
//! | `OTEL_EXPORTER_OTLP_TRACES_HEADERS`, `OTEL_EXPORTER_OTLP_HEADERS` | `name=value` pairs separated by commas |
//! | `OTEL_SERVICE_NAME` | service name, `redrive` by default |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | sampling |
//! | `OTEL_TRACES_EXPORTER=none`, `OTEL_SDK_DISABLED=true` | no traces |

use redrive_core::text::Share;
use redrive_core::trace::{Sampler, SenderSays};

use crate::client::address::Address;

const TRACES: &str = "/v1/traces";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtlpSettings {
    pub(crate) address: Address,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) service_name: String,
    pub(crate) sampler: Sampler,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSettings {
    #[error("{from} is not a valid collector address: {why}")]
    Address { from: &'static str, why: String },
    #[error("{variable} must be `name=value` pairs separated by commas")]
    Headers { variable: &'static str },
    #[error(
        "OTEL_TRACES_SAMPLER has no `{given}`: use always_on, always_off or traceidratio, optionally with the prefix parentbased_"
    )]
    Sampler { given: String },
    #[error("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, not `{given}`")]
    Share { given: String },
    #[error("OTEL_EXPORTER_OTLP_PROTOCOL is {given}: only http/json is supported")]
    Protocol { given: String },
}

impl OtlpSettings {
    pub(crate) const fn sampler(&self) -> Sampler {
        self.sampler
    }

    /// The settings; `None` without an endpoint.
    pub(crate) fn read(
        flag: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, InvalidSettings> {
        // An empty variable counts as unset.
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is_off = variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value.trim() == "none")
            || variable("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        let Some((address, path)) = address(flag, &variable)? else { return Ok(None) };
        if is_off && flag.is_none() {
            return Ok(None);
        }
        let protocol = variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            .or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"))
            .filter(|given| given.trim() == "grpc");
        if let Some(given) = protocol {
            return Err(InvalidSettings::Protocol { given });
        }
        Ok(Some(Self {
            address,
            path,
            headers: headers(&variable)?,
            service_name: variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "redrive".to_owned()),
            sampler: sampler(&variable)?,
        }))
    }
}

type AddressAndPath = Option<(Address, String)>;

fn address(
    flag: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<AddressAndPath, InvalidSettings> {
    let read = |from, text: &str| {
        let parsed = text.trim().parse::<Address>();
        parsed.map_err(|why| InvalidSettings::Address { from, why: why.to_string() })
    };
    if let Some(flag) = flag {
        return Ok(Some((read("--otlp", flag)?, TRACES.to_owned())));
    }
    if let Some(whole) = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        let address = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &whole)?;
        let path = if address.base_path().is_empty() { "/" } else { "" };
        return Ok(Some((address, path.to_owned())));
    }
    let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    let base = base.map(|text| read("OTEL_EXPORTER_OTLP_ENDPOINT", &text)).transpose()?;
    Ok(base.map(|address| (address, TRACES.to_owned())))
}

fn headers(variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>, InvalidSettings> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
    let found = names.into_iter().find_map(|name| Some((name, variable(name)?)));
    let Some((name, text)) = found else { return Ok(Vec::new()) };
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let (key, value) = (key.trim().to_ascii_lowercase(), decoded(value.trim()));
        let is_sound =
            http::HeaderName::try_from(&key).is_ok() && http::HeaderValue::try_from(&value).is_ok();
        is_sound.then_some((key, value))
    };
    pairs.map(pair).collect::<Option<Vec<_>>>().ok_or(InvalidSettings::Headers { variable: name })
}

fn decoded(value: &str) -> String {
    // A plus is literal here, not a blank as in a query.
    let query = format!("v={}", value.replace('+', "%2B").replace('&', "%26"));
    let decoded = form_urlencoded::parse(query.as_bytes()).next();
    decoded.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn sampler(variable: &dyn Fn(&str) -> Option<String>) -> Result<Sampler, InvalidSettings> {
    let Some(given) = variable("OTEL_TRACES_SAMPLER") else { return Ok(Sampler::USUAL) };
    let (sender, name) = match given.trim().strip_prefix("parentbased_") {
        Some(rest) => (SenderSays::Heeded, rest),
        None => (SenderSays::Ignored, given.trim()),
    };
    let share = match name {
        "always_on" => Share::ALL,
        "always_off" => Share::NONE,
        "traceidratio" => match variable("OTEL_TRACES_SAMPLER_ARG") {
            None => Share::ALL,
            Some(text) => {
                let share = text.trim().parse().ok().and_then(Share::new);
                share.ok_or(InvalidSettings::Share { given: text })?
            }
        },
        _ => return Err(InvalidSettings::Sampler { given }),
    };
    Ok(Sampler { share, sender })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn read(flag: Option<&str>, variables: Variables<'_>) -> Result<Option<OtlpSettings>, InvalidSettings> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        OtlpSettings::read(flag, |name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn an_address_is_where_it_is_said_first() {
        let (base, whole) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        #[rustfmt::skip]
        let cases: [(&str, Option<&str>, Variables<'_>, Option<&str>); 9] = [
            ("nothing set",           None,                 &[],                                               None),
            ("a flag",                Some("http://c:4318"), &[],                                              Some("http://c:4318 /v1/traces")),
            ("a base",                None,                 &[(base, "http://c:4318/otel/")],                  Some("http://c:4318/otel /v1/traces")),
            ("the whole address",     None,                 &[(base, "http://b"), (whole, "http://c/traces")], Some("http://c/traces ")),
            ("a whole one, bare",     None,                 &[(whole, "http://c:4318")],                       Some("http://c:4318 /")),
            ("a flag before all",     Some("http://f"),     &[(whole, "http://c/traces")],                     Some("http://f /v1/traces")),
            ("an empty one is none",  None,                 &[(base, "")],                                     None),
            ("switched off",          None,                 &[(base, "http://c"), ("OTEL_TRACES_EXPORTER", "none")], None),
            ("switched off for all",  None,                 &[(base, "http://c"), ("OTEL_SDK_DISABLED", "TRUE")],    None),
        ];
        for (name, flag, variables, expected) in cases {
            let read = read(flag, variables).expect("it is sound");
            let shown = read.map(|settings| format!("{} {}", settings.address, settings.path));
            assert_eq!(shown.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn headers_names_and_samplers_are_read() {
        let settings = |name: &str, value: &str| {
            read(Some("http://c"), &[(name, value)]).map(|settings| settings.expect("a flag is there"))
        };
        let read = settings("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key = a%20b+c ,x=1").expect("they are sound");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read.headers, [pair("api-key", "a b+c"), pair("x", "1")]);
        assert_eq!(settings("OTEL_SERVICE_NAME", "shop").expect("a name").service_name, "shop");
        assert_eq!(settings("OTHER", "").expect("nothing").service_name, "redrive");
        let heeded = |share| Sampler { share, sender: SenderSays::Heeded };
        let ignored = |share| Sampler { share, sender: SenderSays::Ignored };
        #[rustfmt::skip]
        let cases = [
            ("always_on",               ignored(Share::ALL)),
            ("always_off",              ignored(Share::NONE)),
            ("parentbased_always_on",   Sampler::USUAL),
            ("parentbased_always_off",  heeded(Share::NONE)),
            ("parentbased_traceidratio", heeded(Share::ALL)),
        ];
        for (text, expected) in cases {
            assert_eq!(
                settings("OTEL_TRACES_SAMPLER", text).expect("it is known").sampler,
                expected,
                "{text}"
            );
        }
        let part = OtlpSettings::read(Some("http://c"), |name| match name {
            "OTEL_TRACES_SAMPLER" => Some("traceidratio".to_owned()),
            "OTEL_TRACES_SAMPLER_ARG" => Some("0.25".to_owned()),
            _ => None,
        });
        let part = part.expect("it is sound").expect("a flag is there");
        assert_eq!(Some(part.sampler.share), Share::new(0.25));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        #[rustfmt::skip]
        let cases = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS",  "no pair"),
            ("OTEL_EXPORTER_OTLP_HEADERS",  "two words=1"),
            ("OTEL_TRACES_SAMPLER",         "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        for (name, value) in cases {
            let address = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
            let refused = read(None, &[(name, value), address]).expect_err(value);
            assert!(refused.to_string().contains(name) || name.ends_with("HEADERS"), "{refused}");
        }
        let share = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert_eq!(read(Some("http://c"), &share), Err(InvalidSettings::Share { given: "2".to_owned() }));
    }
}
