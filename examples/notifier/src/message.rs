//! Messages and their status, in a SQLite file that several processes may open.
//!
//! Invariant: a status changes only from one that allows it, in one statement; whoever comes second changes
//! nothing and is told how it stands.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use redrive::clock::wall_clock;
use redrive::transition::sqlite::{ApplyError, StateColumn, StateText};
use redrive::transition::{Applied, Transitions};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use uuid::Uuid;

/// How long a statement waits for another process.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS messages (
        message_id      TEXT PRIMARY KEY,
        correlation_id  TEXT NOT NULL,
        stage           TEXT NOT NULL,
        title           TEXT NOT NULL,
        text            TEXT NOT NULL,
        status          TEXT NOT NULL,
        notification_id TEXT,
        error           TEXT,
        created_date    TEXT NOT NULL,
        updated_date    TEXT NOT NULL
    ) STRICT";

/// Where the status of a message stands.
const STATUS: StateColumn<'static> = StateColumn { table: "messages", key: "message_id", state: "status" };

/// Which status may follow which.
static TRANSITIONS: LazyLock<Transitions<Status>> = LazyLock::new(|| {
    let rows = [
        (Status::Created, [Status::Queued].as_slice()),
        (Status::Queued, [Status::Completed, Status::Failed].as_slice()),
    ];
    Transitions::new(&rows).expect("each row leads on")
});

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was taken.
    Created,
    /// The queue has delivered it.
    Queued,
    /// Its reader was told.
    Completed,
    /// Nobody will be told.
    Failed,
}

/// Where a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Development.
    Dev,
    /// Staging.
    Stage,
    /// Production.
    Prod,
}

/// A message that is not stored yet.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Where it belongs.
    pub stage: Stage,
    /// Its title, which may be empty.
    pub title: String,
    /// What it says.
    pub text: String,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Which.
    pub message_id: String,
    /// What ties log lines together.
    pub correlation_id: String,
    /// Where it belongs.
    pub stage: Stage,
    /// Its title.
    pub title: String,
    /// What it says.
    pub text: String,
    /// How far it has come.
    pub status: Status,
    /// What its reader got, once they did.
    pub notification_id: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it was taken.
    pub created_date: String,
    /// When it last changed.
    pub updated_date: String,
}

/// Why messages cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The file says no.
    #[error("the messages cannot be read or written")]
    Store(#[from] rusqlite::Error),
    /// Its status cannot be changed.
    #[error("the status cannot be changed")]
    Status(#[from] ApplyError),
    /// The work was not done: the program is ending.
    #[error("the program is ending")]
    Ending,
}

/// The messages of a file; clones are the same.
#[derive(Clone, Debug)]
pub struct Messages {
    connection: Arc<Mutex<Connection>>,
}

impl Messages {
    /// Opens a file, or makes it.
    pub fn open(path: &Path) -> Result<Self, MessageError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_LIMIT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Stores a new message.
    pub async fn create(&self, draft: Draft) -> Result<Message, MessageError> {
        let now = wall_clock().to_string();
        let message = Message {
            message_id: Uuid::now_v7().to_string(),
            correlation_id: Uuid::now_v7().to_string(),
            stage: draft.stage,
            title: draft.title,
            text: draft.text,
            status: Status::Created,
            notification_id: None,
            error: None,
            created_date: now.clone(),
            updated_date: now,
        };
        let stored = message.clone();
        self.with(move |connection| {
            Ok(connection.execute(
                "INSERT INTO messages (message_id, correlation_id, stage, title, text, status, created_date, updated_date)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
                params![
                    stored.message_id,
                    stored.correlation_id,
                    stored.stage.as_str(),
                    stored.title,
                    stored.text,
                    stored.status.as_str(),
                    stored.created_date,
                ],
            )?)
        })
        .await?;
        Ok(message)
    }

    /// The message of that id.
    pub async fn find(&self, id: &str) -> Result<Option<Message>, MessageError> {
        let id = id.to_owned();
        self.with(move |connection| {
            let query = "SELECT * FROM messages WHERE message_id = ?1";
            Ok(connection.query_row(query, [id], message_of).optional()?)
        })
        .await
    }

    /// The queue has delivered it.
    pub async fn queue(&self, id: &str) -> Result<Applied<Status>, MessageError> {
        self.change(id, Status::Queued, |_| Ok(())).await
    }

    /// Its reader was told, by that notification.
    pub async fn complete(&self, id: &str, notification_id: String) -> Result<Applied<Status>, MessageError> {
        let key = id.to_owned();
        self.change(id, Status::Completed, move |connection| {
            let sql =
                "UPDATE messages SET notification_id = ?2 WHERE message_id = ?1 AND notification_id IS NULL";
            connection.execute(sql, params![key, notification_id]).map(drop)
        })
        .await
    }

    /// Nobody will be told, for that reason.
    pub async fn fail(&self, id: &str, reason: String) -> Result<Applied<Status>, MessageError> {
        let key = id.to_owned();
        self.change(id, Status::Failed, move |connection| {
            let sql = "UPDATE messages SET error = ?2 WHERE message_id = ?1";
            connection.execute(sql, params![key, reason]).map(drop)
        })
        .await
    }

    /// How many there are of each status.
    pub async fn counts(&self) -> Result<BTreeMap<Status, u32>, MessageError> {
        self.with(|connection| {
            let mut counts: BTreeMap<Status, u32> = Status::ALL.map(|status| (status, 0)).into();
            let mut query = connection.prepare("SELECT status, COUNT(*) FROM messages GROUP BY status")?;
            for row in query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))? {
                let (word, count) = row?;
                counts.extend(Status::from_word(&word).map(|status| (status, count)));
            }
            Ok(counts)
        })
        .await
    }

    /// Changes the status if that is allowed, and then what else belongs to it, all or nothing.
    async fn change(
        &self,
        id: &str,
        to: Status,
        also: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<Applied<Status>, MessageError> {
        let id = id.to_owned();
        self.with(move |connection| {
            let transaction = connection.unchecked_transaction()?;
            let applied = TRANSITIONS.apply_at(&transaction, STATUS, &id, to)?;
            if applied == Applied::Changed {
                let sql = "UPDATE messages SET updated_date = ?2 WHERE message_id = ?1";
                transaction.execute(sql, params![id, wall_clock().to_string()])?;
                also(&transaction)?;
            }
            transaction.commit()?;
            Ok(applied)
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, MessageError> + Send + 'static,
    ) -> Result<T, MessageError> {
        let connection = Arc::clone(&self.connection);
        let done = tokio::task::spawn_blocking(move || {
            work(&connection.lock().expect("nothing panics while it holds the connection"))
        });
        done.await.map_err(|_| MessageError::Ending)?
    }
}

fn message_of(row: &Row<'_>) -> rusqlite::Result<Message> {
    let word = |name: &str| row.get::<_, String>(name);
    Ok(Message {
        message_id: row.get("message_id")?,
        correlation_id: row.get("correlation_id")?,
        stage: Stage::from_word(&word("stage")?).ok_or(rusqlite::Error::InvalidQuery)?,
        title: row.get("title")?,
        text: row.get("text")?,
        status: Status::from_word(&word("status")?).ok_or(rusqlite::Error::InvalidQuery)?,
        notification_id: row.get("notification_id")?,
        error: row.get("error")?,
        created_date: row.get("created_date")?,
        updated_date: row.get("updated_date")?,
    })
}

impl StateText for Status {
    fn name(&self) -> &str {
        self.as_str()
    }
}

impl Status {
    /// All of them, in the order in which a message may have them.
    pub const ALL: [Self; 4] = [Self::Created, Self::Queued, Self::Completed, Self::Failed];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Queued => "queued",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl Stage {
    const ALL: [Self; 3] = [Self::Dev, Self::Stage, Self::Prod];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Stage => "stage",
            Self::Prod => "prod",
        }
    }

    /// The stage of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == word)
    }
}
