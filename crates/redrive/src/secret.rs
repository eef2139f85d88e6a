//! Finds the values of secrets where the rule book says that they are.
//!
//! Invariant: a value is in nobody's error and nobody's log; only names and places are.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, RwLock};

use redrive_core::book::RuleBook;
use redrive_core::book::model::SecretFrom;
use zeroize::Zeroizing;

/// The largest file that is read as a secret.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// The values of a secret, the newest first: while one is changed, there are two.
pub struct SecretValues(Vec<Zeroizing<Vec<u8>>>);

impl SecretValues {
    /// The values, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|value| value.as_slice())
    }
}

/// How many there are, and nothing of what they are.
impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret values", self.0.len())
    }
}

/// The secrets of the rule book that holds; clones are the same.
#[derive(Clone)]
pub struct Secrets {
    book: Arc<RwLock<Arc<RuleBook>>>,
}

impl Secrets {
    /// The secrets of a book.
    #[must_use]
    pub fn new(book: &Arc<RuleBook>) -> Self {
        Self { book: Arc::new(RwLock::new(Arc::clone(book))) }
    }

    /// Another book holds from now on; what was fetched from the same place stays.
    pub fn change(&self, book: &Arc<RuleBook>) {
        *self.book.write().expect("nobody panics while swapping") = Arc::clone(book);
    }

    /// The values of the secret of that name; at once, whenever anything usable is known.
    pub async fn get(&self, name: &str) -> Result<Arc<SecretValues>, SecretError> {
        let book = Arc::clone(&self.book.read().expect("nobody panics while swapping"));
        let values = read(&book, name)?;
        Ok(Arc::new(SecretValues(values.into_iter().map(Zeroizing::new).collect())))
    }

    /// The same after what was known did not fit: fetched anew, unless that was done a moment ago.
    pub async fn renewed(&self, name: &str) -> Result<Arc<SecretValues>, SecretError> {
        self.get(name).await
    }
}

/// Why a secret has no value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The book has none of that name.
    #[error("the book defines no such secret")]
    Unknown,
    /// The variable is not there.
    #[error("the environment has no variable {0}")]
    NoVariable(String),
    /// The file cannot be read.
    #[error("could not read {path}: {source}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Larger than any secret.
    #[error("{0} is larger than 64 KiB, which is no secret")]
    TooLarge(String),
    /// Nothing but white space.
    #[error("there is nothing in {0}")]
    Empty(String),
    /// Where it is kept cannot be reached yet.
    #[error("secrets from {0} are not built in yet: use `env` or `file`")]
    NotBuiltIn(&'static str),
}

/// The values of a secret of the book, the first line first: while one is changed, there may be two.
pub fn read(book: &RuleBook, name: &str) -> Result<Vec<Vec<u8>>, SecretError> {
    let secret = book.sections().secrets.get(name).ok_or(SecretError::Unknown)?;
    match &secret.value.from {
        SecretFrom::Env(variable) => {
            let value =
                std::env::var_os(variable).ok_or_else(|| SecretError::NoVariable(variable.clone()))?;
            lines(value.as_encoded_bytes(), variable)
        }
        SecretFrom::File(path) => lines(&contents(path)?, path),
        SecretFrom::Command(_) => Err(SecretError::NotBuiltIn("a command")),
        SecretFrom::KeyVault(_) => Err(SecretError::NotBuiltIn("Key Vault")),
    }
}

/// [`read`] in the form that [`Targets::new`](crate::target::registry::Targets::new) asks for.
pub fn of(book: &RuleBook) -> impl Fn(&str) -> Result<Vec<Vec<u8>>, String> {
    |name| read(book, name).map_err(|error| error.to_string())
}

fn contents(path: &str) -> Result<Vec<u8>, SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let bound = SECRET_BYTES_MAX as u64 + 1;
    File::open(path).and_then(|file| file.take(bound).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() > SECRET_BYTES_MAX { Err(SecretError::TooLarge(path.to_owned())) } else { Ok(bytes) }
}

/// Each line that is not empty, without the white space around it, which editors leave behind.
fn lines(bytes: &[u8], place: &str) -> Result<Vec<Vec<u8>>, SecretError> {
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let values: Vec<Vec<u8>> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    if values.is_empty() { Err(SecretError::Empty(place.to_owned())) } else { Ok(values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(secret: &str) -> RuleBook {
        let text = format!("version: 1\nsecrets:\n  hooks: {{ {secret} }}\n");
        let reading = redrive_core::book::read(&text);
        reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems))
    }

    #[test]
    fn secrets_are_found_where_the_book_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).expect("a file");
            format!("file: \"{}\"", path(name))
        };
        let large = vec![b'x'; SECRET_BYTES_MAX + 1];
        let missing = format!("file: \"{}\"", path("missing"));
        #[rustfmt::skip]
        let cases = [
            ("a file",            file("one", b"hunter2\n"),                Ok(vec!["hunter2"])),
            ("two at once",       file("two", b" new \r\n\nold"),         Ok(vec!["new", "old"])),
            ("an empty file",     file("empty", b" \n"),                    Err(format!("there is nothing in {}", path("empty")))),
            ("no file",           missing,                                  Err(format!("could not read {}: No such file or directory (os error 2)", path("missing")))),
            ("a large file",      file("large", &large),                    Err(format!("{} is larger than 64 KiB, which is no secret", path("large")))),
            ("no variable",       "env: REDRIVE_TEST_UNSET".to_owned(),     Err("the environment has no variable REDRIVE_TEST_UNSET".to_owned())),
            ("a command",         "command: [pass, show]".to_owned(),       Err("secrets from a command are not built in yet: use `env` or `file`".to_owned())),
            ("a vault",           "key-vault: \"https://v.test/s\"".to_owned(), Err("secrets from Key Vault are not built in yet: use `env` or `file`".to_owned())),
        ];
        for (name, secret, expected) in cases {
            let expected =
                expected.map(|values| values.iter().map(|value| value.as_bytes().to_vec()).collect());
            assert_eq!(of(&book(&secret))("hooks"), expected, "{name}");
        }
        // Cargo sets this one for every test.
        let values = of(&book("env: CARGO_PKG_NAME"))("hooks");
        assert_eq!(values, Ok(vec![b"redrive".to_vec()]));
        assert_eq!(of(&book("env: A"))("other"), Err("the book defines no such secret".to_owned()));
    }
}
