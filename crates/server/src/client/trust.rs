//! Why a server behind TLS is not believed, and what to do about it.

use std::fmt;

use rustls::{CertificateError, Error};

/// What was wrong with what a server showed.
#[derive(Debug)]
pub(crate) struct TlsTrustError(Box<Error>);

impl TlsTrustError {
    pub(crate) fn new(error: Error) -> Self {
        Self(Box::new(error))
    }
}

/// What is wrong, and below it what to do.
impl fmt::Display for TlsTrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", redrive_node::tls::why(&self.0), remedy(&self.0))
    }
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "name the certificate that vouches for it with --ca FILE or REDRIVE_CA, if you know it to be right"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "reach it by a name that its certificate is for: --server URL",
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew its certificate, and look at the clocks of both machines",
        Error::InvalidMessage(_) => "a server without TLS is reached by http://: --server URL",
        _ => "nothing was sent to it",
    }
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn every_distrust_has_a_remedy() {
        #[rustfmt::skip]
        let cases = [
            (Error::InvalidCertificate(CertificateError::UnknownIssuer),   "its certificate is signed by nobody who is trusted here\n  name the certificate that vouches for it with --ca FILE or REDRIVE_CA, if you know it to be right"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "its certificate is for another name\n  reach it by a name that its certificate is for: --server URL"),
            (Error::InvalidCertificate(CertificateError::Expired),         "its certificate has expired\n  renew its certificate, and look at the clocks of both machines"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType),    "it does not speak TLS\n  a server without TLS is reached by http://: --server URL"),
            (Error::DecryptError,                                          "cannot decrypt peer's message\n  nothing was sent to it"),
        ];
        for (error, expected) in cases {
            assert_eq!(TlsTrustError::new(error).to_string(), expected);
        }
    }
}
