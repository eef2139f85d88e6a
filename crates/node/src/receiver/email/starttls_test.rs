//! A connection that becomes private before anything is said on it.

use std::sync::Mutex;

use rcgen::{CertificateParams, KeyPair};
use redrive_core::alerts::notice::AlertStage;
use redrive_core::book::connectors::email::{Smtp, SmtpPrivacy};
use redrive_core::book::model::Network;
use redrive_core::policy::answer::{BrokerError, TransportError};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::super::notice_test::notice;
use super::*;
use crate::target::call_test::{call, delivery};
use crate::tls::Roots;

/// What a mail server heard: each line with whether anybody could have listened in.
type Heard = Arc<Mutex<Vec<(&'static str, String)>>>;

/// What a mail server says of itself, and to the wish for privacy.
#[derive(Clone, Copy)]
struct Manners {
    offers: &'static str,
    to_starttls: &'static str,
}

const WILLING: Manners =
    Manners { offers: "250-mail.test\r\n250 STARTTLS\r\n", to_starttls: "220 go on\r\n" };

/// A mail server on loopback.
struct Post {
    port: u16,
    heard: Heard,
    certificate: CertificateDer<'static>,
}

impl Post {
    async fn start(manners: Manners) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("a key and its certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let heard = Heard::default();
        let (acceptor, log) = (TlsAcceptor::from(Arc::new(config)), Arc::clone(&heard));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever does not trust it hangs up, and is heard no more.
                let _ = attend(stream, &acceptor, manners, &log).await;
            }
        });
        Self { port, heard, certificate }
    }

    fn heard(&self) -> Vec<(&'static str, String)> {
        self.heard.lock().expect("lock is not poisoned").clone()
    }
}

async fn attend(stream: TcpStream, tls: &TlsAcceptor, manners: Manners, log: &Heard) -> std::io::Result<()> {
    let mut open = BufStream::new(stream);
    open.write_all(b"220 mail.test\r\n").await?;
    if !talk(&mut open, "in the open", manners, log).await? {
        return Ok(());
    }
    let mut private = BufStream::new(tls.accept(open.into_inner()).await?);
    let manners = Manners { offers: "250-mail.test\r\n250 AUTH PLAIN\r\n", ..manners };
    talk(&mut private, "in private", manners, log).await.map(drop)
}

/// Answers line by line; says whether the other side wants to go on in private.
async fn talk(
    stream: &mut BufStream<impl AsyncRead + AsyncWrite + Unpin>,
    place: &'static str,
    manners: Manners,
    log: &Heard,
) -> std::io::Result<bool> {
    let mut in_mail = false;
    loop {
        stream.flush().await?;
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(false);
        }
        let line = line.trim_end().to_owned();
        log.lock().expect("lock is not poisoned").push((place, line.clone()));
        let answer = match line.split(' ').next().unwrap_or_default() {
            "." => "250 taken\r\n",
            _ if in_mail => continue,
            "EHLO" => manners.offers,
            "STARTTLS" => manners.to_starttls,
            "AUTH" => "235 welcome\r\n",
            "DATA" => "354 go on\r\n",
            "QUIT" => "221 bye\r\n",
            _ => "250 well\r\n",
        };
        in_mail = line == "DATA";
        stream.write_all(answer.as_bytes()).await?;
        if line == "STARTTLS" && answer.starts_with("220") {
            stream.flush().await?;
            return Ok(true);
        }
    }
}

/// Whose word is taken for a server's certificate.
#[derive(Clone, Copy)]
enum Trust {
    ItsOwn,
    Untrusted,
}

/// What becomes of a mail to it.
async fn sent(post: &Post, trust: Trust) -> TargetReply {
    let roots = match trust {
        Trust::ItsOwn => vec![post.certificate.clone()],
        Trust::Untrusted => Vec::new(),
    };
    let smtp =
        Smtp { privacy: SmtpPrivacy::StartTls, user: None, host: "localhost".to_owned(), port: post.port };
    let email = EmailSettings {
        to: "ops@a.test".to_owned(),
        from: "redrive@a.test".to_owned(),
        smtp,
        network: Network::Private,
        secret: None,
    };
    let place = "receiver ops, line 3".to_owned();
    let pool = Arc::new(Pool::new(Roots::Only(roots)));
    let mail = Mail::new(&email, None, place, pool).expect("mail");
    let told = serde_json::to_string(&notice(AlertStage::Firing)).expect("JSON");
    let headers =
        [("ce-specversion", "1.0"), ("ce-id", "n-1"), ("ce-source", "redrive"), ("ce-type", "alert.firing")];
    match mail.call(call("10s", vec![delivery(1, &headers, &told)])).await {
        Ending::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn mail_is_said_in_private_alone() {
    let post = Post::start(WILLING).await;
    let reply = sent(&post, Trust::ItsOwn).await;
    assert_eq!(reply.seen, ReplyKind::Taken, "{reply:?}");
    let heard = post.heard();
    let open: Vec<&str> =
        heard.iter().filter(|(place, _)| *place == "in the open").map(|(_, l)| &**l).collect();
    assert_eq!(open, ["EHLO a.test", "STARTTLS"]);
    assert!(heard.contains(&("in private", "MAIL FROM:<redrive@a.test>".to_owned())), "{heard:?}");
    assert!(heard.iter().any(|(_, line)| line.starts_with("Subject: [critical]")), "{heard:?}");
}

#[tokio::test]
async fn nothing_is_said_where_it_cannot_be_private() {
    #[rustfmt::skip]
    let cases: [(&str, Manners, Trust, ReplyKind, &str); 3] = [
        ("it is not offered",      Manners { offers: "250 mail.test\r\n", ..WILLING },
            Trust::ItsOwn, ReplyKind::Transport(TransportError::Tls), "does not offer STARTTLS"),
        ("it is put off",          Manners { to_starttls: "454 not now\r\n", ..WILLING },
            Trust::ItsOwn, ReplyKind::Broker(BrokerError::Unavailable), "454"),
        ("untrusted",  WILLING,
            Trust::Untrusted, ReplyKind::Transport(TransportError::Tls), "not signed by a trusted authority"),
    ];
    for (name, manners, trust, seen, words) in cases {
        let post = Post::start(manners).await;
        let reply = sent(&post, trust).await;
        assert_eq!(reply.seen, seen, "{name}: {reply:?}");
        assert!(reply.message.contains(words), "{name}: {reply:?}");
        let said: Vec<_> = post.heard().into_iter().filter(|(_, line)| line.contains('@')).collect();
        assert_eq!(said, [], "{name}");
    }
}
