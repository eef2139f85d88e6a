//! Tokens of the issuer in the rule book, if there is one.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use redrive::clock::wall_clock;
use redrive::stale::UnavailableValue;
use redrive_core::book::RuleBook;
use redrive_node::secret::Secrets;
use redrive_node::target::http::Pool;
use redrive_node::token::{Claims, KeysChange, Tokens};

use crate::access::failures::CredentialProblem;
use crate::api::error::ApiError;

/// Receives changes of the issuer's keys; `None` when the issuer left the rule book.
pub(crate) type IssuerAlarm = Arc<dyn Fn(Option<KeysChange>) + Send + Sync>;

pub(crate) struct BearerTokens {
    secrets: Secrets,
    pool: Arc<Pool>,
    alarm: IssuerAlarm,
    tokens: ArcSwapOption<Tokens>,
}

impl BearerTokens {
    pub(crate) fn new(secrets: Secrets, pool: Arc<Pool>, alarm: IssuerAlarm) -> Self {
        Self { secrets, pool, alarm, tokens: ArcSwapOption::empty() }
    }

    /// Keeps the fetched keys of an unchanged issuer.
    pub(crate) fn prepare(&self, book: &RuleBook) -> Result<Option<Arc<Tokens>>, String> {
        let Some(rules) = &book.sections().access.jwt else { return Ok(None) };
        if let Some(tokens) = self.tokens().filter(|tokens| tokens.is_by(rules)) {
            return Ok(Some(tokens));
        }
        let made = Tokens::new(rules, self.secrets.clone(), Arc::clone(&self.pool));
        let tokens = made.map_err(|error| format!("the address of the issuer's keys is invalid: {error}"))?;
        Ok(Some(Arc::new(tokens)))
    }

    pub(crate) fn switch(&self, next: Option<Arc<Tokens>>) {
        let before = self.tokens.swap(next.clone());
        if let (Some(before), Some(next)) = (&before, &next)
            && Arc::ptr_eq(before, next)
        {
            return;
        }
        (self.alarm)(None);
        if let Some(tokens) = next {
            let alarm = Arc::clone(&self.alarm);
            tokens.listen(move |news| alarm(Some(news)));
            tokio::spawn(async move { tokens.warm().await });
        }
    }

    /// The rule book requires tokens, but none can be checked.
    pub(crate) fn shut(&self, why: String) {
        tracing::error!(error = why, "token verification unavailable");
        (self.alarm)(Some(KeysChange::Gone { why }));
    }

    fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.load_full()
    }

    /// The issuer, if its keys cannot be fetched.
    pub(crate) async fn unavailable(&self) -> Option<(String, UnavailableValue)> {
        let tokens = self.tokens()?;
        tokens.failing().await.map(|problem| (tokens.issuer().to_owned(), problem))
    }

    pub(crate) fn are_believed(&self) -> bool {
        self.tokens().is_some()
    }

    /// `Err` if the token cannot be checked now.
    pub(crate) async fn find(&self, token: &str) -> Result<Result<Claims, CredentialProblem>, ApiError> {
        let Some(tokens) = self.tokens() else { return Ok(Err(CredentialProblem::NoTokens)) };
        match tokens.verify(token, wall_clock()).await {
            Ok(claims) => Ok(Ok(claims)),
            Err(error) if error.is_outage() => {
                tracing::debug!(%error, "token could not be verified");
                Err(ApiError::unavailable("tokens cannot be verified at the moment: try again, or use a key"))
            }
            Err(error) => {
                tracing::debug!(%error, "token rejected");
                Ok(Err(CredentialProblem::Token(error)))
            }
        }
    }
}
