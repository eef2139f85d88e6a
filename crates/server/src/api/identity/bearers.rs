//! The tokens of the issuer that the rule book believes, if it believes one.

use std::sync::{Arc, RwLock};

use redrive::clock::wall_clock;
use redrive::stale::Ailing;
use redrive_core::book::RuleBook;
use redrive_node::secret::Secrets;
use redrive_node::target::http::Pool;
use redrive_node::token::{Claims, KeysNews, Tokens};

use super::failed::Doubt;
use crate::api::error::ApiError;

/// Hears what is to be told of the issuer's keys; nothing, of an issuer that the book does not have any more.
pub(crate) type Alarm = Arc<dyn Fn(Option<KeysNews>) + Send + Sync>;

/// Reads tokens by the book that holds.
pub(super) struct Bearers {
    secrets: Secrets,
    pool: Arc<Pool>,
    alarm: Alarm,
    tokens: RwLock<Option<Arc<Tokens>>>,
}

impl Bearers {
    pub(super) fn new(secrets: Secrets, pool: Arc<Pool>, alarm: Alarm) -> Self {
        Self { secrets, pool, alarm, tokens: RwLock::new(None) }
    }

    /// Another rule book holds. The keys of an issuer that stays are kept.
    pub(super) fn change(&self, book: &RuleBook) {
        let Some(rules) = &book.sections().access.jwt else {
            *self.tokens.write().expect("nobody panics while swapping") = None;
            (self.alarm)(None);
            return;
        };
        if self.tokens().is_some_and(|tokens| tokens.is_by(rules)) {
            return;
        }
        (self.alarm)(None);
        let tokens = match Tokens::new(rules, self.secrets.clone(), Arc::clone(&self.pool)) {
            Ok(tokens) => Some(Arc::new(tokens)),
            Err(error) => {
                // The door stays shut: a book that asks for tokens was never one that asks for nothing.
                tracing::error!(%error, "no token can be checked: the address of the issuer's keys is not right");
                let why = format!("the address of its keys is not right: {error}");
                (self.alarm)(Some(KeysNews::Gone { why }));
                None
            }
        };
        if let Some(tokens) = tokens.clone() {
            let alarm = Arc::clone(&self.alarm);
            tokens.listen(move |news| alarm(Some(news)));
            tokio::spawn(async move { tokens.warm().await });
        }
        *self.tokens.write().expect("nobody panics while swapping") = tokens;
    }

    fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.read().expect("nobody panics while swapping").clone()
    }

    /// The issuer, if its keys cannot be fetched.
    pub(super) async fn ailing(&self) -> Option<(String, Ailing)> {
        let tokens = self.tokens()?;
        tokens.ailing().await.map(|ailing| (tokens.issuer().to_owned(), ailing))
    }

    /// Whether the book believes tokens.
    pub(super) fn are_believed(&self) -> bool {
        self.tokens().is_some()
    }

    /// Whom a token speaks of, or why it is not believed; an error if that cannot be known now.
    pub(super) async fn find(&self, token: &str) -> Result<Result<Claims, Doubt>, ApiError> {
        let Some(tokens) = self.tokens() else { return Ok(Err(Doubt::NoTokens)) };
        match tokens.verify(token, wall_clock()).await {
            Ok(claims) => Ok(Ok(claims)),
            Err(error) if error.is_outage() => {
                tracing::debug!(%error, "a token could not be checked");
                Err(ApiError::unavailable("tokens cannot be checked at the moment: try again, or use a key"))
            }
            Err(error) => {
                tracing::debug!(%error, "a token is not believed");
                Ok(Err(Doubt::Token(error)))
            }
        }
    }
}
