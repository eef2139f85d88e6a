//! Secrets in environment variables, which do not change while the program runs.

use std::future::Future;
use std::pin::Pin;

use zeroize::Zeroizing;

use super::{SecretError, SecretSource, SecretValues};

pub(super) struct EnvVariable(pub(super) String);

impl SecretSource for EnvVariable {
    fn read_now(&self) -> Option<Result<SecretValues, SecretError>> {
        Some(read(&self.0))
    }

    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<SecretValues, SecretError>> + Send + '_>> {
        Box::pin(std::future::ready(read(&self.0)))
    }
}

pub(super) fn read(variable: &str) -> Result<SecretValues, SecretError> {
    let value = std::env::var_os(variable).ok_or_else(|| SecretError::NoVariable(variable.to_owned()))?;
    let bytes = Zeroizing::new(value.into_encoded_bytes());
    SecretValues::from_lines(&bytes, variable)
}
