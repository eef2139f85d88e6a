//! The API key of a command: from a file or the environment, never from the arguments, which every process
//! can read.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use http::HeaderValue;

use crate::cli::CommandRefusal;

pub(crate) const VARIABLE: &str = "REDRIVE_KEY";

const KEY_BYTES_MAX: u64 = 16 * 1024;

/// A key or a token, never printed.
#[derive(Clone)]
pub(crate) struct ClientKey(HeaderValue);

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl ClientKey {
    /// From the file, else from the environment.
    pub(crate) fn find(file: Option<&Path>) -> anyhow::Result<Option<Self>> {
        match file {
            Some(path) => {
                let text = read(path).with_context(|| format!("could not read {}", path.display()))?;
                Self::parse(&text)
                    .with_context(|| format!("{} must contain one key and nothing else", path.display()))
                    .map(Some)
            }
            None => match std::env::var(VARIABLE) {
                Ok(text) if text.trim().is_empty() => Ok(None),
                Ok(text) => {
                    Self::parse(&text).with_context(|| format!("{VARIABLE} is not a valid key")).map(Some)
                }
                Err(std::env::VarError::NotPresent) => Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => {
                    Err(CommandRefusal(format!("{VARIABLE} is not UTF-8")).into())
                }
            },
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let is_key = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        anyhow::ensure!(is_key, "a key is one word of plain characters");
        let mut value =
            HeaderValue::try_from(format!("Bearer {text}")).context("a key is plain characters")?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    pub(crate) const fn header(&self) -> &HeaderValue {
        &self.0
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(KEY_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        #[rustfmt::skip]
        let cases = [
            ("a key",           "rk_1_x",          Some("Bearer rk_1_x")),
            ("with a line end", "rk_1_x\n",        Some("Bearer rk_1_x")),
            ("nothing",         "\n",              None),
            ("two",             "rk_1_x\nrk_2_y",  None),
            ("no characters",   "rk_\u{e4}",       None),
        ];
        for (name, text, expected) in cases {
            std::fs::write(&path, text).expect("it can be written");
            let key = ClientKey::find(Some(&path)).ok().flatten();
            let header = key.as_ref().map(|key| key.header().to_str().expect("plain characters"));
            assert_eq!(header, expected, "{name}");
            assert!(!format!("{key:?}").contains("rk_"), "it is not printed");
        }
        let missing = ClientKey::find(Some(&folder.path().join("none"))).expect_err("there is no such file");
        assert!(missing.to_string().contains("could not read"), "{missing}");
    }
}
